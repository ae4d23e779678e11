"""Folders become tar streams, and hostile tar streams stay where they belong."""

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from atoll import errors
from atoll.sdk import _archive


def packed(folder: Path) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(b"".join(_archive.pack(folder))))


@pytest.mark.parametrize("given", [None, 5, b"/x", ["x"], "a\0b"])
def test_what_is_no_path_of_this_host_is_a_typed_error(given: Any) -> None:
    assert _archive.local_path("local", "/x") == _archive.local_path("local", Path("/x"))
    with pytest.raises(errors.ValidationFailedError, match="local"):
        _archive.local_path("local", given)


def test_a_folder_becomes_an_archive_with_relative_names(tmp_path: Path) -> None:
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / "b" / "x.sh").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "b" / "x.sh").chmod(0o755)
    (tmp_path / "a").symlink_to("../outside")
    (tmp_path / ("ü" * 120)).write_bytes(b"")
    os.mkfifo(tmp_path / "fifo")
    with packed(tmp_path) as tar:
        members = {member.name: member for member in tar}
        assert set(members) == {"a", "b", "b/c", "b/x.sh", "ü" * 120}
        assert members["a"].linkname == "../outside"
        assert members["b/x.sh"].mode == 0o755
        assert {member.uid for member in members.values()} == {0}
        file = tar.extractfile("b/x.sh")
        assert file is not None
        assert file.read() == b"#!/bin/sh\n"


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(".")
    with packed(tmp_path) as tar:
        assert tar.getnames() == ["loop"]


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, _archive.CHUNK + 1])
def test_content_is_padded_to_blocks(tmp_path: Path, size: int) -> None:
    (tmp_path / "f").write_bytes(bytes([7]) * size)
    assert len(b"".join(_archive.pack(tmp_path))) % tarfile.BLOCKSIZE == 0
    with packed(tmp_path) as tar:
        assert tar.getmember("f").size == size


def test_a_file_that_shrinks_while_it_is_sent_does_not_break_the_archive(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 5000)
    (tmp_path / "b").write_bytes(b"whole")
    pieces = []
    for piece in _archive.pack(tmp_path):
        pieces.append(piece)
        os.truncate(tmp_path / "a", 0)
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as tar:
        assert tar.getmember("a").size == 5000
        file = tar.extractfile("b")
        assert file is not None
        assert file.read() == b"whole"


def test_progress_counts_bytes() -> None:
    seen: list[int] = []
    assert list(_archive.counted(iter([b"ab", b"c"]), seen.append)) == [b"ab", b"c"]
    assert seen == [2, 3]
    assert list(_archive.counted(iter([b"x"]), None)) == [b"x"]


def test_a_file_is_told_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    (tmp_path / "f").chmod(0o640)
    assert _archive.file_mode(tmp_path / "f") == 0o640
    assert _archive.file_mode(tmp_path) is None
    assert b"".join(_archive.read(tmp_path / "f")) == b"abc"


def body(*members: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    "hostile",
    [
        [member("../evil")],
        [member("dev", tarfile.CHRTYPE)],
        [member("out", tarfile.SYMTYPE, "../../.."), member("out/evil")],
        [member("out", tarfile.SYMTYPE, "/etc")],
        [member("hard", tarfile.LNKTYPE, "../../etc/passwd")],
    ],
)
def test_nothing_is_written_outside_of_the_target(
    tmp_path: Path, hostile: list[tarfile.TarInfo]
) -> None:
    target = tmp_path / "in" / "target"
    with _archive.Incoming(target) as incoming:
        incoming.write(body(member("fine"), *hostile))
        with pytest.raises(errors.SecurityError):
            incoming.finish_folder()
    assert [path.name for path in tmp_path.rglob("*")] == ["in"]


def test_an_absolute_name_lands_inside_the_target(tmp_path: Path) -> None:
    with _archive.Incoming(tmp_path / "t") as incoming:
        incoming.write(body(member("/etc/evil")))
        incoming.finish_folder()
    assert (tmp_path / "t" / "etc" / "evil").is_file()


def test_a_folder_takes_the_place_of_an_empty_one_only(tmp_path: Path) -> None:
    target = tmp_path / "t"
    target.mkdir()
    with _archive.Incoming(target) as incoming:
        incoming.write(body(member("fine")))
        incoming.finish_folder()
    assert [path.name for path in target.iterdir()] == ["fine"]
    with pytest.raises(errors.FileExistsError):
        _archive.Incoming(target)


def test_a_file_takes_the_place_of_the_old_one_only_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "f"
    target.write_bytes(b"old")
    with _archive.Incoming(target) as incoming:
        incoming.write(b"new")
    assert target.read_bytes() == b"old"
    with _archive.Incoming(target) as incoming:
        incoming.write(b"new")
        incoming.finish_file(0o4755)
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o7777 == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
