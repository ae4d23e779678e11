import errno
import os
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from atoll.errors import ContainerUnavailableError
from atoll.runtime.oci import cgroup_files


def test_a_process_of_another_group_is_not_held() -> None:
    """A process id may be taken by a stranger: killing it would hit somebody else's program."""
    assert not cgroup_files.holds(PurePosixPath("atoll/e1/box"), os.getpid())
    assert not cgroup_files.holds(PurePosixPath("atoll/e1/box"), 2**22 - 1)


def test_membership_is_compared_by_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"cgroup": "4:memory:/atoll/e1/box-2/agent\n0::/\n", "stat": "9 (a) b) S 1 1"}
    monkeypatch.setattr(cgroup_files, "read", lambda path: told[path.name])
    assert cgroup_files.holds(PurePosixPath("atoll/e1/box-2"), 9)
    assert not cgroup_files.holds(PurePosixPath("atoll/e1/box"), 9)


def test_a_zombie_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"cgroup": "0::/atoll/e1/box/agent\n", "stat": "9 (a) S) Z 1 1"}
    monkeypatch.setattr(cgroup_files, "read", lambda path: told[path.name])
    assert not cgroup_files.holds(PurePosixPath("atoll/e1/box"), 9)


def test_values_that_are_no_numbers_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("a 1\nlong line with words\nb 2\n")
    assert cgroup_files.keyed(tmp_path / "stat") == {"a": 1, "b": 2}


def test_a_file_that_is_gone_reads_as_nothing(tmp_path: Path) -> None:
    assert cgroup_files.read(tmp_path / "gone") == ""
    assert cgroup_files.number(tmp_path / "gone") == 0


def test_writing_never_makes_a_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        cgroup_files.write(tmp_path / "memory.max", 1)


def test_a_group_that_stays_busy_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(path: Path) -> None:
        raise OSError(errno.EBUSY, "busy")

    monkeypatch.setattr(Path, "rmdir", busy)
    monkeypatch.setattr(cgroup_files, "KILL_TIMEOUT", 0.01)
    with pytest.raises(ContainerUnavailableError, match="still in use"):
        cgroup_files.remove(tmp_path)


def test_another_failure_is_not_waited_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> None:
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr(Path, "rmdir", refused)
    with pytest.raises(PermissionError):
        cgroup_files.remove(tmp_path)


def test_a_group_is_made_even_while_the_one_above_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last sandbox of an engine may go in the moment the next one starts."""
    mkdir, engine = Path.mkdir, tmp_path / "e1"
    taken: list[Path] = []

    def raced(path: Path, *args: Any, **options: Any) -> None:
        mkdir(path, *args, **options)
        if path == engine and len(taken) < 2:
            taken.append(path)
            path.rmdir()

    monkeypatch.setattr(Path, "mkdir", raced)
    cgroup_files.make(engine / "box")
    assert (engine / "box").is_dir()
    assert len(taken) == 2


def test_the_group_of_an_engine_with_other_sandboxes_stays(tmp_path: Path) -> None:
    for name in ("one", "two"):
        cgroup_files.make(tmp_path / "e1" / name)
    cgroup_files.remove(tmp_path / "e1" / "one")
    assert [path.name for path in (tmp_path / "e1").iterdir()] == ["two"]
