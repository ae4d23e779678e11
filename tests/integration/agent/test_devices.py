import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from atoll.agent.devices import Devices, open_devices


def test_every_device_is_what_its_name_says_and_stays_closed_in_programs() -> None:
    opened = open_devices()
    assert os.read(opened.empty, 1) == b""
    assert os.write(opened.sink, b"x") == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(opened.empty, b"x")
    assert stat.S_ISCHR(os.fstat(opened.terminals).st_mode)
    assert not any(map(os.get_inheritable, opened))
    for fd in opened:
        os.close(fd)


@pytest.mark.parametrize("kind", ["fifo", "file", "directory", "nothing", "another device"])
def test_what_is_no_such_device_is_not_opened(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a FIFO would wait for ever."""
    path = tmp_path / "null"
    makers: dict[str, Callable[[], object]] = {
        "fifo": lambda: os.mkfifo(path),
        "file": path.touch,
        "directory": path.mkdir,
        "nothing": lambda: None,
        "another device": lambda: path.symlink_to("/dev/zero"),
    }
    makers[kind]()
    before = len(os.listdir("/proc/self/fd"))
    found = os.open
    monkeypatch.setattr(os, "open", lambda name, *rest: found(_moved(name, path), *rest))
    with pytest.raises(FileNotFoundError):
        open_devices()
    assert len(os.listdir("/proc/self/fd")) == before


def _moved(name: str, path: Path) -> str:
    return str(path) if name == "/dev/null" else name


def test_a_missing_terminal_device_only_costs_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    found = os.open
    monkeypatch.setattr(
        os, "open", lambda name, *rest: found(name.replace("ptmx", "no-such"), *rest)
    )
    opened = open_devices()
    assert opened.terminals == Devices().terminals == -1
    for fd in {*opened} - {-1}:
        os.close(fd)
