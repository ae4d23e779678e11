import os
import tempfile
from pathlib import Path
from typing import cast

import pytest

from atoll import errors
from atoll.agent.files import walking
from atoll.agent.files.merging import merge, sync
from atoll.agent.files.streams import Stream


class _Caller:
    """A caller that is always there."""

    def check(self) -> None: ...

    check_now = check


def _merge(source: Path, target: Path) -> None:
    stream = cast("Stream", _Caller())
    with (
        walking.opened(os.fsencode(source)) as here,
        walking.opened(os.fsencode(target)) as there,
    ):
        merge(stream, here, there, os.fsencode(target))
        sync(there)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source/a/b").mkdir(parents=True)
    (tmp_path / "source/a/b/f").write_bytes(b"new")
    (tmp_path / "source/a/link").symlink_to("b")
    (tmp_path / "target").mkdir()
    return tmp_path / "source"


def test_a_tree_is_moved_into_another(source: Path) -> None:
    target = source.parent / "target"
    (target / "a").mkdir()
    (target / "a/kept").touch()
    _merge(source, target)
    assert sorted(os.listdir(target / "a")) == ["b", "kept", "link"]
    assert (target / "a/b/f").read_bytes() == b"new"


def test_a_tree_is_copied_where_another_file_system_is_mounted(source: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        if os.stat(name).st_dev == source.stat().st_dev:
            pytest.skip("no second file system")
        _merge(source, Path(name))
        assert (Path(name) / "a/b/f").read_bytes() == b"new"
        assert os.readlink(Path(name) / "a/link") == "b"


def test_nothing_is_moved_when_one_entry_collides(source: Path) -> None:
    target = source.parent / "target"
    (source / "0-first").touch()
    (source / "z-last").touch()
    (target / "a").mkdir()
    (target / "a/b").touch()
    with pytest.raises(errors.NotDirectoryError):
        _merge(source, target)
    assert os.listdir(target) == ["a"]
