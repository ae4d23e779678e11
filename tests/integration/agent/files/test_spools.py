import errno
import os
from pathlib import Path

import pytest

from atoll.agent.files import pathnames
from atoll.agent.files.spools import (
    Spool,
    check_writable,
    copy_content,
    is_temporary,
    is_temporary_of,
    temporary_name,
)


def test_temporary_names_are_known_and_differ() -> None:
    one, other = temporary_name(), temporary_name()
    assert is_temporary(one)
    assert one != other
    assert not is_temporary(b".atoll-notes.tmp")


def test_what_is_not_committed_leaves_nothing(tmp_path: Path) -> None:
    with pathnames.target(os.fsencode(tmp_path / "f")) as place:
        with Spool(place, None) as spool:
            spool.write(b"content")
        assert os.listdir(tmp_path) == []


def test_a_file_that_appears_meanwhile_is_replaced(tmp_path: Path) -> None:
    with pathnames.target(os.fsencode(tmp_path / "f")) as place, Spool(place, None) as spool:
        spool.write(b"ours")
        (tmp_path / "f").write_bytes(b"theirs")
        spool.replace()
    assert (tmp_path / "f").read_bytes() == b"ours"
    assert os.listdir(tmp_path) == ["f"]


def refuses(*_: object, **__: object) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.mark.parametrize("missing", ["rename", "link"])
def test_a_new_file_without_nameless_ones_is_a_link_or_else_a_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """Who watches is told that it was created; file systems without links have to do."""
    monkeypatch.setattr(os, "O_TMPFILE", os.O_RDONLY)  # opening a directory for writing: EISDIR
    monkeypatch.setattr(os, missing, refuses)
    with pathnames.target(os.fsencode(tmp_path / "f")) as place, Spool(place, None) as spool:
        spool.write(b"content")
        spool.replace()
    assert (tmp_path / "f").read_bytes() == b"content"
    assert os.listdir(tmp_path) == ["f"]


def test_a_target_that_becomes_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"kept")
    with pathnames.target(os.fsencode(tmp_path / "f")) as place, Spool(place, None) as spool:
        spool.write(b"ours")
        (tmp_path / "f").symlink_to("other")
        spool.replace()
    assert (tmp_path / "other").read_bytes() == b"kept"
    assert not (tmp_path / "f").is_symlink()


def test_a_parent_that_is_swapped_keeps_the_write(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "trap").mkdir()
    with pathnames.target(os.fsencode(tmp_path / "d/f")) as place, Spool(place, None) as spool:
        spool.write(b"x")
        (tmp_path / "d").rename(tmp_path / "moved")
        (tmp_path / "d").symlink_to("trap")
        spool.replace()
    assert os.listdir(tmp_path / "trap") == []
    assert os.listdir(tmp_path / "moved") == ["f"]


def test_a_failed_append_takes_its_part_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(b"old")
    path = os.fsencode(tmp_path / "f")
    with pathnames.target(path) as place, Spool(place, place.stat()) as spool:
        spool.write(b"new")
        monkeypatch.setattr(os, "fsync", lambda _fd: os.close(-1))  # fails after the write
        with pytest.raises(OSError):
            spool.append()
    assert (tmp_path / "f").read_bytes() == b"old"


def test_content_is_copied_from_where_the_files_stand(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    (tmp_path / "b").write_bytes(b"xx")
    source = os.open(tmp_path / "a", os.O_RDONLY)
    target = os.open(tmp_path / "b", os.O_WRONLY)
    os.lseek(source, 2, os.SEEK_SET)
    os.lseek(target, 2, os.SEEK_SET)
    assert copy_content(source, target, 3) == 3
    assert copy_content(source, target) == 5
    os.close(source)
    os.close(target)
    assert (tmp_path / "b").read_bytes() == b"xx23456789"


def test_content_goes_into_pipes_too(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    source = os.open(tmp_path / "a", os.O_RDONLY)
    reader, writer = os.pipe()
    assert copy_content(source, writer) == 7
    assert os.read(reader, 100) == b"content"
    for fd in (source, reader, writer):
        os.close(fd)


def test_directories_are_not_writable_files(tmp_path: Path) -> None:
    with pathnames.target(os.fsencode(tmp_path)) as place, pytest.raises(IsADirectoryError):
        check_writable(place, place.require())


def test_a_temporary_name_tells_whose_it_is() -> None:
    name = temporary_name()
    assert is_temporary(name)
    assert is_temporary_of(os.getpid(), name)
    assert not is_temporary_of(os.getpid() + 1, name)
