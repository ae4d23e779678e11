from pathlib import Path

import pytest

import crashes
from atoll.host import durable


def test_what_is_named_is_whole_whatever_reaches_the_disk_first(tmp_path: Path) -> None:
    with crashes.watched(tmp_path) as disk:
        (tmp_path / "draft").write_bytes(b"whole")
        durable.name(tmp_path / "draft", tmp_path / "file")
        assert [cut.get("file", b"whole") for cut in disk.cuts] == [b"whole"]
        assert disk.left() == {"file": b"whole"}


def test_one_call_writes_all_that_is_in_a_folder(tmp_path: Path) -> None:
    with crashes.watched(tmp_path) as disk:
        (tmp_path / "a/b").mkdir(parents=True)
        (tmp_path / "a/b/file").write_bytes(b"x")
        assert disk.left() == {}
        durable.sync_all(tmp_path)
        assert disk.left() == {"a": None, "a/b": None, "a/b/file": b"x"}


def test_a_name_without_a_sync_is_seen_to_be_lost(tmp_path: Path) -> None:
    """The weakened run: a rename may be ahead of what it names, or not be there at all."""
    with crashes.watched(tmp_path) as disk:
        (tmp_path / "draft").write_bytes(b"whole")
        (tmp_path / "draft").rename(tmp_path / "file")
        assert (disk.cuts, disk.left()) == ([{"file": b""}], {})


def test_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    for call in (durable.sync, durable.sync_all):
        with pytest.raises(FileNotFoundError):
            call(tmp_path / "none")
    assert not list(tmp_path.iterdir())
