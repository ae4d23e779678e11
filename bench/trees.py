"""Trees of many small files: finding in them, installing and removing them."""

import asyncio
import hashlib
import io
import json
import random
import shutil
import tarfile
import tempfile
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import atoll
from bench import floors
from bench.table import Report, Row, Samples, timed

FILES = 50_000
"""Files that are searched, 3 KB on average."""

PACKAGES, MEMBERS = 60, 500
"""What `npm ci` installs: as many files as a web project of some frameworks has."""

SEARCHES = (
    ("rare text", "Needle42", False),
    ("rare expression", r"\bNeedle\d+\b", True),
    ("frequent text", "ab", False),
)


async def finding(sandbox: atoll.Sandbox, report: Report) -> None:
    """`find_in_files`, with ripgrep inside and without, against ripgrep as a command inside."""
    program = "/usr/bin/rg"
    if not await _brought(sandbox, program):
        report.skip("find in 50,000 files", "no ripgrep of the host runs in the image")
        return
    ripgrep = {}
    for name, text, regex in SEARCHES:
        argv = [program, "-uuu", *([] if regex else ["-F"]), "-e", text, "tree"]
        ripgrep[name] = await _timed(partial(sandbox.exec, ["sh", "-c", '"$@" | wc', "-", *argv]))
    for where in ("with rg inside", "without rg inside"):
        for name, text, regex in SEARCHES:
            found = await _timed(partial(sandbox.find_in_files, "tree", text, regex=regex))
            against = "ripgrep as a command"
            report.add(Row(f"find {name}, {where}", found, against, ripgrep[name], 3.0))
        await sandbox.exec(["rm", "-f", program])


async def _brought(sandbox: atoll.Sandbox, path: str) -> bool:
    """Bring the host's ripgrep in, if it runs there."""
    program = shutil.which("rg")
    if program is None:
        return False
    await sandbox.upload(program, path)
    return (await sandbox.exec([path, "--version"])).exit_code == 0


async def _timed(call: Callable[[], Awaitable[Any]]) -> Samples:
    return await timed(call, runs=5)


def make_tree(folder: Path, count: int) -> None:
    """Write *count* files of words, one in 500 with a word nobody else has."""
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(2_000)]
    for number in range(count):
        place = folder / f"d{number // 2_500}/e{number // 100}"
        if number % 100 == 0:
            place.mkdir(parents=True)
        lines = [" ".join(chance.choices(words, k=9)) for _ in range(chance.choice((6, 24, 120)))]
        if number % 500 == 0:
            lines.append("the word Needle42 stands here")
        (place / f"f{number}.py").write_text("\n".join(lines) + "\n")


def make_project(folder: Path, packages: int) -> None:
    """Write a project whose dependencies are archives beside it: no registry is asked."""
    (folder / "archives").mkdir(parents=True)
    wanted, locked = {}, {}
    for number in range(packages):
        name, archive = f"p{number}", _package(f"p{number}")
        (folder / f"archives/{name}.tgz").write_bytes(archive)
        wanted[name] = f"file:archives/{name}.tgz"
        integrity = b64encode(hashlib.sha512(archive).digest()).decode()
        locked[f"node_modules/{name}"] = {
            "version": "1.0.0", "resolved": wanted[name], "integrity": f"sha512-{integrity}",
        }  # fmt: skip
    about = {"name": "project", "version": "1.0.0", "dependencies": wanted}
    (folder / "package.json").write_text(json.dumps(about))
    lock = {**about, "lockfileVersion": 3, "requires": True, "packages": {"": about, **locked}}
    (folder / "package-lock.json").write_text(json.dumps(lock))


def _package(name: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for number in range(MEMBERS):
            text = json.dumps({"name": name, "version": "1.0.0"}) if not number else "x = 1\n" * 150
            info = tarfile.TarInfo(f"package/{f'm{number}.js' if number else 'package.json'}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


INSTALL = "cd /workspace/project && npm_config_cache=/workspace/.npm npm ci --no-audit --no-fund"
REMOVE = "rm -rf /workspace/project/node_modules"


async def installing(
    sandbox: atoll.Sandbox, image: Path, scratch: Path, packages: int, report: Report
) -> None:
    """Install and remove modules, against the same programs on the same project on the host."""
    if (await sandbox.exec(["npm", "--version"], cwd="/")).exit_code:
        report.skip("npm ci", "the image has no npm")
        return
    with tempfile.TemporaryDirectory(prefix="bench-npm-", dir=scratch) as folder:
        make_project(Path(folder, "project"), packages)
        await sandbox.upload(Path(folder, "project"), "/workspace/project")
        await asyncio.to_thread(floors.in_image, image, Path(folder), INSTALL)  # reads node itself
        for name, script in (("npm ci", INSTALL), ("rm -rf node_modules", REMOVE)):
            start = time.perf_counter()
            await sandbox.exec(["sh", "-c", script], timeout=600, check=True)
            inside = Samples([time.perf_counter() - start])
            floor = await asyncio.to_thread(floors.in_image, image, Path(folder), script)
            what = f"{name}, {packages * MEMBERS} files"
            report.add(Row(what, inside, "the same programs on the host", floor, 2.0))
