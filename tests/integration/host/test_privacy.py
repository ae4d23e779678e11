"""Whoever starts an engine may have any limits and any umask."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from atoll.host import privacy
from integration.server.engines import EngineProcess

KEEP = """
import os
from atoll.host import privacy
privacy.keep()
open("file", "w").close()
os.mkdir("folder")
os.abort()
"""


def dumping() -> None:
    """Let the child dump as much as this process may."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))


def ended(code: str, folder: Path, umask: int) -> int:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder, preexec_fn=dumping, umask=umask, stderr=subprocess.DEVNULL, check=False,
    ).returncode  # fmt: skip


@pytest.mark.parametrize("umask", [0, 0o077])
def test_an_abort_leaves_no_core_and_new_files_have_the_same_modes(
    tmp_path: Path, umask: int
) -> None:
    assert ended(KEEP, tmp_path, umask) < 0
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"file": 0o644, "folder": 0o755}


def test_an_engine_has_no_core_and_no_umask_of_its_starter(tmp_path: Path) -> None:
    before, limits = os.umask(0), resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (limits[1], limits[1]))
    try:
        engine = EngineProcess(tmp_path / "state")
    finally:
        os.umask(before)
        resource.setrlimit(resource.RLIMIT_CORE, limits)
    try:
        process = Path(f"/proc/{engine.process.pid}")
        status = dict(line.split(":\t", 1) for line in _lines(process / "status"))
        assert int(status["Umask"], 8) == privacy.UMASK
        core = next(line for line in _lines(process / "limits") if line.startswith("Max core"))
        assert core.split()[4:6] == ["0", "0"]
    finally:
        assert engine.end() == 0


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()
