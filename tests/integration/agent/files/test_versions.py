import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atoll import errors
from atoll.agent.files import versions
from atoll.wire.files import Changes
from integration.agent.files_calls import call, write


def _check(path: Path, since: str | None = None, **fields: Any) -> Changes:
    reply = call("check_changes", path=str(path), since=since, **fields).reply
    return msgspec.convert(reply, Changes)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/f").write_text("one")
    (tmp_path / "node_modules").mkdir()
    return tmp_path


def _same_size_and_time(tree: Path) -> None:
    before = (tree / "a/f").stat()
    (tree / "a/f").write_text("two")
    os.utime(tree / "a/f", ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: list[Callable[[Path], object]] = [
    _same_size_and_time,
    lambda tree: (tree / "a/f").unlink(),
    lambda tree: (tree / "a/b/new").touch(),
    lambda tree: (tree / "a/b").rename(tree / "a/c"),
    lambda tree: (tree / "a/f").chmod(0o600),
    lambda tree: (tree / "link").symlink_to("a"),
    lambda tree: write(tree / "a/f", b"one"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_seen(tree: Path, change: Callable[[Path], object]) -> None:
    version = _check(tree).version
    assert _check(tree, version).status == "unchanged"
    change(tree)
    answer = _check(tree, version)
    assert answer.status == "changed"
    assert _check(tree, answer.version).status == "unchanged"


def test_what_is_excluded_and_being_read_does_not_count(tree: Path) -> None:
    version = _check(tree).version
    (tree / "node_modules/x").touch()
    (tree / ".DS_Store").touch()
    (tree / "a/f").read_text()
    assert _check(tree, version).status == "unchanged"


def test_only_what_is_included_counts(tree: Path) -> None:
    version = _check(tree, include=["*.py"]).version
    (tree / "a/other").touch()
    assert _check(tree, version, include=["*.py"]).status == "unchanged"
    (tree / "a/b/x.py").touch()
    assert _check(tree, version, include=["*.py"]).status == "changed"


def test_a_version_of_other_options_or_another_form_asks_for_a_new_start(tree: Path) -> None:
    version = _check(tree).version
    for since, options in ((version, {"exclude": ["x"]}), ("0-abc", {}), ("", {})):
        answer = _check(tree, since, **options)
        assert (answer.status, answer.reason) == ("resync", "expired")


def test_one_file_can_be_compared(tree: Path) -> None:
    version = _check(tree / "a/f").version
    assert _check(tree / "a/f", version).status == "unchanged"
    (tree / "a/f").write_text("three")
    assert _check(tree / "a/f", version).status == "changed"


def test_a_missing_path_is_typed(tree: Path) -> None:
    with pytest.raises(errors.FileNotFoundError):
        _check(tree / "nope")


def test_a_tree_in_memory_ends_with_the_start_of_its_sandbox(
    monkeypatch: pytest.MonkeyPatch, tree: Path
) -> None:
    """Even where every number is the same again."""
    on_disk = _check(tree).version
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        in_memory = _check(Path(folder)).version
        assert _check(Path(folder), in_memory).status == "unchanged"
        monkeypatch.setattr(versions, "_this_start", lambda: "later")
        answer = _check(Path(folder), in_memory)
        assert (answer.status, answer.reason) == ("resync", "restarted")
        assert _check(Path(folder), answer.version).status == "unchanged"
    assert _check(tree, on_disk).status == "unchanged"


def test_a_directory_that_got_another_inode_is_unchanged(tree: Path) -> None:
    """As after a restart, where overlayfs makes up the inodes of directories."""
    base = _check(tree).version
    (tree / "a/b").rename(tree / "before")
    (tree / "a/b").mkdir()
    (tree / "before").rmdir()
    assert _check(tree, base).status == "unchanged"
