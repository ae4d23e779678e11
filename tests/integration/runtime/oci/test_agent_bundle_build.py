import asyncio
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from atoll.errors import RuntimeNotAvailableError
from atoll.runtime.oci import agent_bundle
from atoll.runtime.oci.agent_bundle import AgentBundle, Interpreter


@pytest.fixture
async def built(tmp_path: Path) -> AgentBundle:
    return await agent_bundle.build(tmp_path)


def python(bundle: AgentBundle, code: str, *prefix: str) -> subprocess.CompletedProcess[str]:
    lib = bundle.path / "lib"
    argv: list[str | Path] = [lib / bundle.loader, "--inhibit-cache", "--library-path", lib]
    argv += [bundle.path / "bin/python", "-I", "-S", "-B", "-c", code]
    return subprocess.run([*prefix, *argv], env={}, cwd="/", capture_output=True, text=True)


def test_everything_the_agent_imports_is_in_it(built: AgentBundle) -> None:
    [agent] = built.path.glob("lib/python3*/atoll/agent")
    found = (path.relative_to(agent).with_suffix("") for path in agent.rglob("*.pyc"))
    modules = sorted(".".join(path.parts) for path in found if path.name != "__init__")
    assert {"__main__", "files.dispatch", "shell.launching"} <= set(modules)
    done = python(built, "\n".join(f"import atoll.agent.{name}" for name in modules))
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_outside_is_loaded_into_the_process(built: AgentBundle) -> None:
    code = "import socket, json, ctypes, hashlib, zlib, lzma; print(open('/proc/self/maps').read())"
    mapped = {line.split()[5] for line in python(built, code).stdout.splitlines() if "/" in line}
    assert mapped
    assert [path for path in mapped if not path.startswith(f"{built.path}/")] == []


def test_no_file_of_the_system_is_looked_at(built: AgentBundle) -> None:
    """Root inside writes those files: a library or module in one would run in the next agent."""
    if not shutil.which("strace"):
        pytest.skip("strace is missing")
    told = python(
        built, "import ctypes, socket, json", "strace", "-s999", "-e", "trace=file"
    ).stderr
    paths = re.findall(r'"(/[^"]*)"', told)
    assert any(path.startswith(f"{built.path}/lib") for path in paths)
    allowed = (f"{built.path}/", "/sys/", "/proc/")
    assert [path for path in paths if not path.startswith(allowed)] == []


def test_it_is_at_most_40_mb(built: AgentBundle) -> None:
    size = sum(path.stat().st_size for path in built.path.rglob("*") if path.is_file())
    assert size < 40 << 20


async def test_a_second_build_is_the_first(built: AgentBundle, tmp_path: Path) -> None:
    before = built.path.stat().st_ino
    assert await agent_bundle.build(tmp_path) == built
    assert built.path.stat().st_ino == before


async def test_builders_that_race_end_with_one_whole_bundle(tmp_path: Path) -> None:
    bundles = await asyncio.gather(*(agent_bundle.build(tmp_path) for _ in range(3)))
    assert len({bundle.path for bundle in bundles}) == 1
    assert [path.name for path in (tmp_path / "agent").iterdir()] == [bundles[0].path.name]


async def test_everybody_may_read_it_whatever_the_engines_umask(tmp_path: Path) -> None:
    """Root inside is nobody on the host."""
    before = os.umask(0o077)
    try:
        bundle = await agent_bundle.build(tmp_path)
    finally:
        os.umask(before)
    for path in (bundle.path, *bundle.path.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & 0o055 == (0o055 if path.is_dir() else mode & 0o011 | 0o044)
        assert not mode & 0o022


async def test_an_interpreter_that_cannot_be_brought_along_is_a_typed_error(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\n")
    real = Interpreter.running()
    wrapped = Interpreter(executable=script, stdlib=real.stdlib, extensions=real.extensions)
    with pytest.raises(RuntimeNotAvailableError, match="ELF"):
        await agent_bundle.build(tmp_path, wrapped)
    assert not list(tmp_path.glob("agent/*"))
