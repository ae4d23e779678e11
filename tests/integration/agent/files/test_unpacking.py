import io
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll import errors
from atoll.agent.files.unpacking import check_name, stays_inside
from atoll.wire.files import UploadResult
from atoll.wire.frames import Kind
from integration.agent.files_calls import NOBODY, Call, call, shared_directory

Member = tuple[str, bytes | None, dict[str, Any]]


def _tar(*members: Member) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content, options in members:
            info = tarfile.TarInfo(name)
            for key, value in options.items():
                setattr(info, key, value)
            info.size = len(content or b"")
            archive.addfile(info, io.BytesIO(content or b""))
    return buffer.getvalue()


def _file(name: str, content: bytes = b"x", **options: Any) -> Member:
    return name, content, options


def _directory(name: str, **options: Any) -> Member:
    return name, None, {"type": tarfile.DIRTYPE, "mode": 0o755, **options}


def _link(name: str, target: str, type: bytes = tarfile.SYMTYPE) -> Member:
    return name, None, {"type": type, "linkname": target}


def _upload(path: Path, *members: Member, **fields: Any) -> UploadResult:
    return msgspec.convert(
        call("upload", path=str(path), body=[_tar(*members)], **fields).reply, UploadResult
    )


def test_a_new_directory_is_made_of_the_archive(tmp_path: Path) -> None:
    result = _upload(
        tmp_path / "a/new",
        _directory("sub", mode=0o500, mtime=1000),
        _file("sub/f", b"hello", mode=0o640, mtime=2000),
        _file("implied/g"),
        _link("sub/link", "../implied/g"),
        _link("sub/same", "sub/f", tarfile.LNKTYPE),
    )
    assert (result.files, result.size) == (5, 6)
    top = tmp_path / "a/new"
    assert (top / "sub/f").read_bytes() == b"hello"
    assert stat.S_IMODE((top / "sub/f").stat().st_mode) == 0o640
    assert (top / "sub/f").stat().st_mtime == 2000
    assert stat.S_IMODE((top / "sub").stat().st_mode) == 0o500
    assert (top / "sub").stat().st_mtime == 1000
    assert os.readlink(top / "sub/link") == "../implied/g"
    assert (top / "sub/same").stat().st_ino == (top / "sub/f").stat().st_ino
    assert stat.S_IMODE(top.stat().st_mode) == stat.S_IMODE((top / "implied").stat().st_mode)
    assert os.listdir(tmp_path / "a") == ["new"]


def test_an_existing_directory_keeps_what_the_archive_does_not_name(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir(mode=0o711)
    (tmp_path / "sub/kept").write_bytes(b"kept")
    (tmp_path / "sub/old").write_bytes(b"old")
    _upload(tmp_path, _directory("sub"), _file("sub/old", b"new"), _file("sub/deep/f"))
    assert (tmp_path / "sub/kept").read_bytes() == b"kept"
    assert (tmp_path / "sub/old").read_bytes() == b"new"
    assert (tmp_path / "sub/deep/f").read_bytes() == b"x"
    assert stat.S_IMODE((tmp_path / "sub").stat().st_mode) == 0o711
    assert os.listdir(tmp_path) == ["sub"]


def test_set_id_and_sticky_bits_are_dropped(tmp_path: Path) -> None:
    _upload(tmp_path / "new", _file("f", mode=0o7755), _directory("d", mode=0o7755))
    assert stat.S_IMODE((tmp_path / "new/f").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "new/d").stat().st_mode) == 0o755


REFUSED: list[tuple[str, list[Member]]] = [
    ("parent", [_file("../evil")]),
    ("hidden parent", [_file("a/../../evil")]),
    ("absolute", [_file("/tmp/agent-files-evil")]),
    ("device", [("dev", None, {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3})]),
    ("block device", [("dev", None, {"type": tarfile.BLKTYPE})]),
    ("fifo", [("fifo", None, {"type": tarfile.FIFOTYPE})]),
    ("link out", [_link("x", "../evil")]),
    ("absolute link", [_link("x", "/etc/passwd")]),
    ("through a link", [_link("x", "."), _file("x/evil")]),
    ("deep through a link", [_directory("d"), _link("d/x", "."), _file("d/x/y/evil")]),
    ("hard link out", [_link("x", "../evil", tarfile.LNKTYPE)]),
    ("hard link absolute", [_link("x", "/etc/passwd", tarfile.LNKTYPE)]),
    ("hard link to nothing", [_link("x", "nope", tarfile.LNKTYPE)]),
    ("hard link through a link", [_link("x", "."), _link("y", "x/x", tarfile.LNKTYPE)]),
    ("below a file", [_file("f"), _file("f/evil")]),
    ("no name", [_file("./")]),
]


@pytest.mark.parametrize("members", [case[1] for case in REFUSED], ids=[c[0] for c in REFUSED])
def test_dangerous_members_are_refused_and_nothing_is_left(
    tmp_path: Path, members: list[Member]
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "kept").write_bytes(b"kept")
    (tmp_path / "evil").write_bytes(b"outside")
    for path in (target, tmp_path / "new"):
        with pytest.raises(errors.SecurityError) as caught:
            _upload(path, _file("first"), *members)
        assert "member" in caught.value.context
    assert os.listdir(target) == ["kept"]
    assert sorted(os.listdir(tmp_path)) == ["evil", "target"]
    assert (tmp_path / "evil").read_bytes() == b"outside"
    assert not os.path.lexists("/tmp/agent-files-evil")


def test_links_out_are_kept_on_request_and_never_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    links = _link("python", "/usr/bin/python3"), _link("out", "../outside")
    _upload(tmp_path / "new", *links, outside_links=True)
    assert os.readlink(tmp_path / "new/python") == "/usr/bin/python3"
    with pytest.raises(errors.SecurityError):
        _upload(tmp_path / "again", *links, _file("out/evil"), outside_links=True)
    with pytest.raises(errors.NotDirectoryError):
        _upload(tmp_path / "new", _file("out/evil"))
    assert os.listdir(tmp_path / "outside") == []


def test_a_target_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "workspace").symlink_to("/")
    with pytest.raises(errors.SecurityError):
        _upload(tmp_path / "workspace", _file("tmp/agent-files-evil"))
    assert not os.path.lexists("/tmp/agent-files-evil")
    (tmp_path / "file").touch()
    with pytest.raises(errors.NotDirectoryError):
        _upload(tmp_path / "file", _file("f"))


@pytest.mark.parametrize(
    ("there", "member"),
    [
        (lambda top: (top / "x/full").mkdir(parents=True), _file("x")),
        (lambda top: (top / "x").touch(), _directory("x")),
        (lambda top: (top / "x").symlink_to("."), _directory("x")),
    ],
)
def test_a_collision_is_found_before_anything_is_moved(
    tmp_path: Path, there: Callable[[Path], object], member: Member
) -> None:
    there(tmp_path)
    before = sorted(os.walk(tmp_path))
    with pytest.raises((errors.IsDirectoryError, errors.NotDirectoryError)) as caught:
        _upload(tmp_path, _file("a"), member, _file("z"))
    assert caught.value.context["path"] == str(tmp_path / "x")
    assert sorted(os.walk(tmp_path)) == before


@pytest.mark.parametrize("cut", [0, 100, 512, 700, 4000])
@pytest.mark.parametrize("ends", [True, False])
def test_an_upload_that_breaks_off_leaves_nothing(tmp_path: Path, cut: int, ends: bool) -> None:
    data = _tar(_file("a", b"x" * 1000), _file("b", b"y" * 2000))[:cut]
    running = Call("upload", path=str(tmp_path / "new"))
    running.send(Kind.DATA, data)
    if ends:
        running.send(Kind.END)
        with pytest.raises(errors.ValidationFailedError):
            running.answer()
    else:
        running.finish()
    assert os.listdir(tmp_path) == []


def test_what_is_no_archive_is_typed(tmp_path: Path) -> None:
    with pytest.raises(errors.ValidationFailedError):
        call("upload", path=str(tmp_path), body=[b"hello" * 1000])


@pytest.mark.parametrize("made", [_file, _directory])
def test_a_time_beyond_all_clocks_is_typed_and_nothing_is_left(
    tmp_path: Path, made: Callable[..., Member]
) -> None:
    """Times of folders are set last, when everything was read."""
    with pytest.raises(errors.ValidationFailedError):
        _upload(tmp_path / "top", made("a", mtime=float(1 << 80)))
    assert list(tmp_path.iterdir()) == []


def test_an_empty_archive_makes_an_empty_directory(tmp_path: Path) -> None:
    assert _upload(tmp_path / "new").files == 0
    assert os.listdir(tmp_path / "new") == []


def test_a_member_named_twice_is_the_later_one(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"kept")
    _upload(tmp_path / "new", _link("f", "g"), _file("f", b"1"), _file("f", b"2"))
    assert (tmp_path / "new/f").read_bytes() == b"2"


@pytest.mark.skipif(os.getuid() != 0, reason="changes the user id")
def test_what_is_made_belongs_to_the_user() -> None:
    with shared_directory() as top:
        _upload(top / "new", _file("f", uid=0, gid=0), uid=NOBODY)
        assert (top / "new/f").stat().st_uid == NOBODY
        (top / "closed").mkdir()
        with pytest.raises(errors.PermissionDeniedError):
            _upload(top / "closed", _file("f"), uid=NOBODY)
        assert os.listdir(top / "closed") == []


@given(st.binary(max_size=30))
def test_accepted_names_stay_inside(name: bytes) -> None:
    try:
        clean = check_name(name)
    except errors.SecurityError:
        return
    assert os.path.normpath(b"/top/" + clean).startswith(b"/top")
    assert not clean.startswith(b"/")


@given(st.lists(st.sampled_from([b"..", b".", b"", b"a"]), max_size=8).map(b"/".join))
def test_links_that_stay_inside_do(target: bytes) -> None:
    if stays_inside(b"p/q", target):
        whole = os.path.normpath(os.path.join(b"/top/p/q", target))
        assert whole == b"/top" or whole.startswith(b"/top/")
