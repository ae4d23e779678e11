import io
import os
import tarfile
from pathlib import Path

import pytest

from atoll.errors import SecurityError
from atoll.sdk._unpack import unpack


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


def archive(*members: tarfile.TarInfo) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info in members:
            info.size = 3 if info.isreg() else 0
            tar.addfile(info, io.BytesIO(b"abc"))
    buffer.seek(0)
    return buffer


SYM, LNK, DIR = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "victim").write_text("safe")
    folder = tmp_path / "target"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    "members",
    [
        [member("../out")],
        [member("a/../../out")],
        [member("link", SYM, "../victim")],
        [member("link", SYM, "/etc/passwd")],
        [member("dir", SYM, ".."), member("dir/victim")],
        [member("victim", LNK, "../victim")],
        [member("a", SYM, "../victim"), member("b", LNK, "a")],
        # Each link is harmless by itself: x leads to the target, x/.. out of it.
        [member("a/b", DIR), member("a/b/x", SYM, "../.."), member("y", SYM, "a/b/x/../victim")],
        [member("d", SYM, ".."), member("d/new", SYM, "x")],
        [member("loop", SYM, "loop")],
        [member("pipe", tarfile.FIFOTYPE)],
        [member("device", tarfile.CHRTYPE)],
        [member("twice"), member("twice")],
        [member("file"), member("file/below")],
    ],
)
def test_what_reaches_outside_is_refused_and_changes_nothing(
    target: Path, members: list[tarfile.TarInfo]
) -> None:
    with pytest.raises((SecurityError, FileNotFoundError)):
        unpack(archive(*members), target)
    assert (target.parent / "victim").read_text() == "safe"
    assert sorted(path.name for path in target.parent.iterdir()) == ["target", "victim"]


def test_links_that_stay_inside_are_kept(target: Path) -> None:
    unpack(
        archive(
            member("a/f"), member("l", SYM, "a/f"), member("d", SYM, "a"), member("h", LNK, "a/f")
        ),
        target,
    )
    assert (target / "l").read_text() == (target / "d/f").read_text() == "abc"
    assert os.stat(target / "h").st_ino == os.stat(target / "a/f").st_ino
    assert (target / "l").is_symlink()


def test_rights_are_kept_but_for_the_dangerous_ones(target: Path) -> None:
    unpack(archive(member("run", mode=0o755), member("set", mode=0o4777)), target)
    assert (target / "run").stat().st_mode & 0o7777 == 0o755
    assert (target / "set").stat().st_mode & 0o7777 == 0o755


def test_a_broken_archive_is_a_typed_error(target: Path) -> None:
    with pytest.raises(SecurityError):
        unpack(io.BytesIO(b"x" * 2000), target)
