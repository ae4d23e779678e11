"""The group of build steps is bounded in both kinds of hierarchy and leaves nothing behind."""

from pathlib import Path

import pytest

from atoll.images import groups


@pytest.mark.parametrize("version", [1, 2])
def test_processes_are_bounded(tmp_path: Path, version: int) -> None:
    if version == 2:
        (tmp_path / "cgroup.controllers").touch()
    else:
        (tmp_path / "pids").mkdir()
    groups.prepare(tmp_path)
    parent = tmp_path / groups.PARENT if version == 2 else tmp_path / "pids" / groups.PARENT
    assert int((parent / "pids.max").read_text()) >= 1_000


def test_a_host_without_groups_is_no_failure(tmp_path: Path) -> None:
    groups.prepare(tmp_path)
    groups.clear(tmp_path)


def test_what_a_killed_build_left_is_removed_everywhere(tmp_path: Path) -> None:
    for hierarchy in (".", "pids", "memory"):
        (tmp_path / hierarchy / groups.PARENT / "buildah-1").mkdir(parents=True)
    (tmp_path / "memory/other").mkdir()
    groups.clear(tmp_path)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["memory", "other", "pids"]
