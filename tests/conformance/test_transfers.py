"""Cases F01 and F02: content of every size and kind, over every way in and out, cut in the middle."""

import asyncio
import hashlib
import http.client
import io
import json
import os
import resource
import socket
import sqlite3
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from email.message import Message
from pathlib import Path
from typing import NamedTuple

import pytest

import atoll
import atoll.sync
from atoll import errors
from conformance.clients import Client

MB = 10**6


class Answer(NamedTuple):
    status: int
    headers: Message
    body: bytes


@pytest.fixture
def ask(url: str, sandbox: atoll.Sandbox) -> Callable[..., Answer]:
    """Speak plain HTTP to the files of the sandbox."""

    def request(method: str, query: str, body: bytes | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("localhost", timeout=30)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(url.removeprefix("unix://"))
        path = f"/v2/namespaces/Sandbox/sandboxes/{sandbox.id}/{query}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with closing(connection):
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())

    return request


async def names(sandbox: atoll.Sandbox, path: str) -> set[str]:
    """Everything in a directory, temporary names too."""
    found = await sandbox.exec(["sh", "-c", 'cd "$0" && ls -A', path])
    return set(found.stdout.split("\n")) - {""}


# F01: sizes.


@pytest.mark.container
@pytest.mark.clients("sync", "http", "cli", "bridge")
async def test_f01_33_megabytes_are_no_limit(box: Client) -> None:
    data = os.urandom(33 * MB)
    await box.write("/workspace/round", data)
    assert (
        hashlib.sha256(await box.read("/workspace/round")).digest() == hashlib.sha256(data).digest()
    )


@pytest.mark.slow
@pytest.mark.container
@pytest.mark.timeout(600)
@pytest.mark.parametrize("size", [2 * 10**9, 3 * 10**9])
async def test_f01_gigabytes_need_no_memory_in_sdk_and_engine(
    url: str, sandbox_id: str, size: int
) -> None:
    piece, sent, got, count = os.urandom(1 << 20), hashlib.sha256(), hashlib.sha256(), 0

    async def content() -> AsyncIterator[bytes]:
        left = size
        while left:
            part = piece[: min(left, len(piece))]
            sent.update(part)
            left -= len(part)
            yield part

    async with atoll.connect(url) as env:
        sandbox = atoll.get_sandbox(env.Sandbox, sandbox_id, instance_type="standard-4")
        await sandbox.write_file("warm", b"x")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        engine_before = _peak_of_engine(url)
        written = await sandbox.write_file("/workspace/big", content())
        async for chunk in sandbox.read_file_stream("/workspace/big"):
            got.update(chunk)
            count += len(chunk)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        engine_grown = _peak_of_engine(url) - engine_before
        await sandbox.destroy()
    assert written.size == count == size
    assert got.digest() == sent.digest()
    assert grown < 64 << 10, f"{grown} KiB more"
    assert engine_grown < 64 << 10, f"{engine_grown} KiB more in the engine"


def _peak_of_engine(url: str) -> int:
    """Return the largest the engine has been, in KiB."""
    pid = Path(url.removeprefix("unix://")).with_name("engine.lock").read_text().strip()
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmHWM")).split()[1])


# F02: kinds.


def _document() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", "<document/>")
    return buffer.getvalue()


def _database(folder: Path) -> bytes:
    with closing(sqlite3.connect(folder / "db")) as database:
        database.execute("create table t (x)")
        database.commit()
    return (folder / "db").read_bytes()


async def test_f02_the_content_tells_what_a_file_is(
    sandbox: atoll.Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> None:
    word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    kinds = {
        "a.docx": (_document(), word, True),
        "a.png": (b"\x89PNG\r\n\x1a\n" + bytes(20), "image/png", True),
        "a.sqlite": (_database(tmp_path_factory.mktemp("db")), "application/vnd.sqlite3", True),
        "a.wasm": (b"\0asm\1\0\0\0\xff", "application/wasm", True),
        "a.json": (b"{}", "application/json", False),
        "a.html": (b"<!doctype html>", "text/html", False),
        "latin": ("ä".encode("latin-1"), "application/octet-stream", True),
    }
    for name, (data, mime_type, is_binary) in kinds.items():
        await sandbox.write_file(name, data)
        read = await sandbox.read_file(name)
        assert (read.mime_type, read.is_binary) == (mime_type, is_binary), name
        assert read.encoding == ("base64" if is_binary else "utf-8")
        assert (await sandbox.read_file(name, encoding="bytes")).content == data


# HTTP: raw bytes, ranges, tags.


async def test_a_part_of_a_file_is_asked_for_by_range(
    sandbox: atoll.Sandbox, ask: Callable[..., Answer]
) -> None:
    await sandbox.write_file("f", b"0123456789")
    whole = await asyncio.to_thread(ask, "GET", "files?path=f")
    assert (whole.status, whole.body, whole.headers["accept-ranges"]) == (
        200,
        b"0123456789",
        "bytes",
    )
    assert whole.headers["content-length"] == "10"
    for wanted, expected in {
        "bytes=2-4": (206, b"234", "bytes 2-4/10"),
        "bytes=7-": (206, b"789", "bytes 7-9/10"),
        "bytes=-3": (206, b"789", "bytes 7-9/10"),
        "bytes=8-99": (206, b"89", "bytes 8-9/10"),
        "lines=1-2": (200, b"0123456789", None),
        "bytes=0-1,3-4": (200, b"0123456789", None),
    }.items():
        got = await asyncio.to_thread(ask, "GET", "files?path=f", range=wanted)
        assert (got.status, got.body, got.headers["content-range"]) == expected, wanted
    outside = await asyncio.to_thread(ask, "GET", "files?path=f", range="bytes=10-")
    assert (outside.status, json.loads(outside.body)["code"]) == (416, "RANGE_NOT_SATISFIABLE")


async def test_a_tag_says_whether_a_file_is_the_same(
    sandbox: atoll.Sandbox, ask: Callable[..., Answer]
) -> None:
    await sandbox.write_file("f", b"0123456789")
    tag = (await asyncio.to_thread(ask, "GET", "files?path=f")).headers["etag"]
    same = await asyncio.to_thread(ask, "GET", "files?path=f", if_none_match=tag)
    assert (same.status, same.body, same.headers["etag"]) == (304, b"", tag)
    part = await asyncio.to_thread(ask, "GET", "files?path=f", range="bytes=0-0", if_range=tag)
    assert (part.status, part.body) == (206, b"0")
    await sandbox.write_file("f", b"9876543210")
    new = await asyncio.to_thread(ask, "GET", "files?path=f", if_none_match=tag)
    assert (new.status, new.body) == (200, b"9876543210")
    part = await asyncio.to_thread(ask, "GET", "files?path=f", range="bytes=0-0", if_range=tag)
    assert (part.status, part.body) == (200, b"9876543210")


@pytest.mark.container
async def test_bodies_are_raw_bytes(sandbox: atoll.Sandbox, ask: Callable[..., Answer]) -> None:
    data = bytes(range(256)) * 5
    put = await asyncio.to_thread(ask, "PUT", "files?path=%2Fworkspace%2Fa%20b&mode=448", data)
    assert json.loads(put.body)["size"] == len(data)
    assert (await sandbox.stat("a b")).mode & 0o777 == 0o700
    got = await asyncio.to_thread(ask, "GET", "files?path=a%20b")
    assert (got.body, got.headers["content-type"]) == (data, "application/octet-stream")
    assert got.headers["x-content-type-options"] == "nosniff"
    missing = await asyncio.to_thread(ask, "GET", "files?path=nothing")
    told = json.loads(missing.body)
    assert (missing.status, told["code"], told["context"]["path"]) == (
        404, "FILE_NOT_FOUND", "/workspace/nothing",
    )  # fmt: skip


# What is cut in the middle leaves nothing.


@pytest.mark.container
async def test_a_write_that_breaks_off_leaves_the_old_file(sandbox: atoll.Sandbox) -> None:
    await sandbox.write_file("d/f", b"old")

    async def breaks() -> AsyncIterator[bytes]:
        for _ in range(8):
            yield bytes(1 << 20)
        raise ConnectionAbortedError("the source is gone")

    with pytest.raises((ConnectionAbortedError, errors.OperationInterruptedError)):
        await sandbox.write_file("d/f", breaks())
    await asyncio.sleep(0.3)
    assert (await sandbox.read_file("d/f")).content == "old"
    assert await names(sandbox, "/workspace/d") == {"f"}


@pytest.mark.container
async def test_a_write_that_is_cancelled_leaves_the_old_file(sandbox: atoll.Sandbox) -> None:
    await sandbox.write_file("d/f", b"old")
    begun = asyncio.Event()

    async def stalls() -> AsyncIterator[bytes]:
        yield bytes(1 << 20)
        begun.set()
        await asyncio.sleep(60)

    write = asyncio.create_task(sandbox.write_file("d/f", stalls()))
    await begun.wait()
    write.cancel()
    with suppress(asyncio.CancelledError):
        await write
    await asyncio.sleep(0.3)
    assert (await sandbox.read_file("d/f")).content == "old"
    assert await names(sandbox, "/workspace/d") == {"f"}


@pytest.mark.container
@pytest.mark.parametrize("existing", [False, True])
async def test_an_upload_that_breaks_off_leaves_nothing(
    url: str, sandbox: atoll.Sandbox, existing: bool
) -> None:
    await sandbox.mkdir("up" if existing else "other")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("a", "b"):
            info = tarfile.TarInfo(name)
            info.size = MB
            archive.addfile(info, io.BytesIO(bytes(MB)))

    def cut() -> None:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(url.removeprefix("unix://"))
            path = f"/v2/namespaces/Sandbox/sandboxes/{sandbox.id}/files/archive?path=up"
            head = f"PUT {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {3 * MB}\r\n\r\n"
            sock.sendall(head.encode() + buffer.getvalue()[: MB + MB // 2])

    await asyncio.to_thread(cut)
    clean = 0  # looks in a row: the first may come before the upload has begun
    async with asyncio.timeout(30):
        while clean < 5:
            found = await names(sandbox, "/workspace")
            clean = 0 if any(name.startswith(".atoll") for name in found) else clean + 1
            await asyncio.sleep(0.05)
    assert await names(sandbox, "/workspace") == ({"up"} if existing else {"other"})
    if existing:
        assert await names(sandbox, "/workspace/up") == set()


async def test_a_download_that_is_cancelled_leaves_nothing(
    sandbox: atoll.Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await sandbox.exec(["sh", "-c", "mkdir d; head -c 50000000 /dev/zero > d/f"])
    here = tmp_path_factory.mktemp("here")
    for source, target in (("d", "folder"), ("d/f", "file")):

        async def stop(count: int) -> None:
            raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await sandbox.download(source, here / target, progress=stop)
    assert list(here.iterdir()) == []


async def test_a_reader_who_leaves_ends_the_reading(sandbox: atoll.Sandbox) -> None:
    await sandbox.exec(["sh", "-c", "head -c 50000000 /dev/zero > f"])
    async with sandbox.read_file_stream("f") as stream:
        assert await anext(stream)
    assert (await sandbox.read_file("f", encoding="bytes", length=3)).content == bytes(3)


async def test_a_file_call_that_waits_holds_up_no_other(sandbox: atoll.Sandbox) -> None:
    """As one on a file system that does not answer would."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def stalls() -> AsyncIterator[bytes]:
        yield b"x"
        begun.set()
        await go_on.wait()

    waiting = [asyncio.create_task(sandbox.write_file(f"w{n}", stalls())) for n in range(20)]
    await begun.wait()
    await asyncio.wait_for(sandbox.write_file("other", b"y"), 10)
    assert await sandbox.exists("other")
    go_on.set()
    assert {done.size for done in await asyncio.gather(*waiting)} == {1}


# Folders.


def _tree(top: Path) -> Path:
    (top / "sub/deep").mkdir(parents=True)
    (top / "sub/deep/ü ñ.txt").write_text("text")
    (top / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (top / "run.sh").chmod(0o755)
    (top / "secret").write_text("s")
    (top / "secret").chmod(0o600)
    (top / "link").symlink_to("sub/deep")
    (top / "empty").mkdir()
    (top / ".gitignore").write_text("*.log\nbuild/\n!keep.log\n")
    (top / "a.log").write_text("x")
    (top / "keep.log").write_text("x")
    (top / "build").mkdir()
    (top / "build/out").write_text("x")
    return top


def _listing(top: Path) -> dict[str, tuple[int, str]]:
    return {
        path.relative_to(top).as_posix(): (
            0 if path.is_symlink() else path.stat().st_mode & 0o777,
            str(path.readlink())
            if path.is_symlink()
            else path.read_text()
            if path.is_file()
            else "",
        )
        for path in top.rglob("*")
    }


@pytest.mark.container
async def test_a_folder_comes_back_as_it_went(
    sandbox: atoll.Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> None:
    here = _tree(tmp_path_factory.mktemp("here") / "t")
    done = await sandbox.upload(here, "in")
    assert (done.path, done.files) == ("/workspace/in", 12)
    there = tmp_path_factory.mktemp("there")
    await sandbox.download("in", there / "t")
    assert _listing(there / "t") == _listing(here)


async def test_ignore_files_are_respected_on_request(
    sandbox: atoll.Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> None:
    here = _tree(tmp_path_factory.mktemp("here") / "t")
    await sandbox.upload(here, "in")
    there = tmp_path_factory.mktemp("there")
    await sandbox.download("in", there / "t", gitignore=True, excludes="secret,sub/*")
    kept = set(_listing(there / "t"))
    assert {"keep.log", ".gitignore", "run.sh", "empty"} <= kept
    assert not {"a.log", "build", "build/out", "secret", "sub/deep"} & kept


def _cp(url: str, *words: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "atoll.cli.main", "cp", "--url", url, *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.container
async def test_cp_copies_files_and_folders_both_ways(
    url: str, sandbox: atoll.Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> None:
    here = _tree(tmp_path_factory.mktemp("here") / "t")
    there = tmp_path_factory.mktemp("there")
    box = sandbox.id
    for words in (
        [str(here), f"{box}:/workspace/in"],
        [f"{box}:/workspace/in", str(there / "t")],
        [str(here / "run.sh"), f"{box}:/workspace/new.sh"],
        [str(here / "run.sh"), f"{box}:/workspace"],
        [f"{box}:run.sh", str(there)],
    ):
        done = await asyncio.to_thread(_cp, url, *words)
        assert done.returncode == 0, done.stderr
    assert _listing(there / "t") == _listing(here)
    assert (await sandbox.exec(["/workspace/new.sh"])).stdout == "ran\n"
    assert (there / "run.sh").read_text() == (here / "run.sh").read_text()
    told = await asyncio.to_thread(_cp, url, "--json", f"{box}:run.sh", str(there / "x"))
    assert json.loads(told.stdout)["bytes"] == len((here / "run.sh").read_bytes())


async def test_cp_tells_what_went_wrong(
    url: str, sandbox: atoll.Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> None:
    there = tmp_path_factory.mktemp("there")
    missing = await asyncio.to_thread(_cp, url, f"{sandbox.id}:nothing", str(there / "x"))
    assert missing.returncode != 0
    assert "/workspace/nothing" in missing.stderr
    assert list(there.iterdir()) == []
