import io
import os
import socket
import stat
import struct
import tarfile
from pathlib import Path
from typing import Any

import pytest

from atoll.errors import InvalidImageError
from atoll.images import upper
from atoll.images.archive import Limits

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(os.geteuid() != 0, reason="whiteouts and overlay attributes need root"),
]

LIST = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in ((1, 7, 2**32 - 1), (2, 7, 1_234), (4, 4, 2**32 - 1), (16, 7, 2**32 - 1), (32, 0, 2**32 - 1))
)  # fmt: skip
LIMITS = Limits(size=10_000_000, members=100)


def whiteout(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))


def seen(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        told = path.lstat()
        name = str(path.relative_to(folder))
        found[name] = (oct(told.st_mode), told.st_uid, told.st_gid, told.st_rdev)
        if path.is_symlink():
            found[name] += (os.readlink(path),)
        elif path.is_file():
            found[name] += (path.read_bytes(), told.st_nlink, int(told.st_mtime))
        if not path.is_symlink():
            found[name] += tuple(sorted((n, os.getxattr(path, n)) for n in os.listxattr(path)))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a sandbox may leave in its layer."""
    top = tmp_path / "upper"
    (top / "opaque" / "inner").mkdir(parents=True)
    (top / "moved").mkdir(mode=0o700)
    os.setxattr(top / "opaque", "trusted.overlay.opaque", b"y")
    os.setxattr(top / "moved", "trusted.overlay.redirect", b"/usr/share")
    (top / "häuser \udce4").write_bytes(b"latin")
    (top / "set-id").write_text("program")
    os.chown(top / "set-id", 1_000, 7)
    (top / "set-id").chmod(0o6755)
    os.link(top / "set-id", top / "opaque" / "same")
    os.setxattr(top / "set-id", "user.note", b"\x00\xff")
    os.setxattr(top / "set-id", "user.a=b", b"%3D")
    os.setxattr(top / "opaque", "system.posix_acl_access", LIST)
    os.setxattr(top / "opaque" / "inner", "system.posix_acl_default", LIST)
    (top / "link").symlink_to("/etc/passwd")
    (top / ".wh.literal").write_text("a name like any other")
    whiteout(top / "gone")
    os.mkfifo(top / "pipe")
    top.chmod(0o1777)
    return top


def packed(folder: Path) -> bytes:
    target = io.BytesIO()
    upper.pack(folder, target)
    return target.getvalue()


def unpacked(data: bytes, target: Path) -> Path:
    target.mkdir()
    upper.unpack(io.BytesIO(data), target, LIMITS)
    return target


def test_all_of_a_layer_comes_back(folder: Path, tmp_path: Path) -> None:
    assert seen(unpacked(packed(folder), tmp_path / "again")) == seen(folder)


def test_sockets_and_what_belongs_to_one_host_stay_behind(folder: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "sock"))
    os.setxattr(folder / "moved", "trusted.overlay.origin", b"a file handle")
    again = unpacked(packed(folder), tmp_path / "again")
    assert not (again / "sock").exists()
    assert os.listxattr(again / "moved") == ["trusted.overlay.redirect"]


def archive(*members: tuple[str, bytes, dict[str, Any]], end: bool = True) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, fields in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            for field, value in fields.items():
                setattr(member, field, value)
            tar.addfile(member)
        if end:
            tar.addfile(tarfile.TarInfo("end"))
    return target.getvalue()


REDIRECT = "SCHILY.xattr.trusted.overlay.redirect"


@pytest.mark.parametrize(
    "member",
    [
        ("files/../../out", tarfile.REGTYPE, {}),
        ("out", tarfile.REGTYPE, {}),
        ("/files/out", tarfile.REGTYPE, {}),
        ("files/hard", tarfile.LNKTYPE, {"linkname": "/etc/passwd"}),
        ("files/hard", tarfile.LNKTYPE, {"linkname": "files/../../secret"}),
        ("files/d", tarfile.DIRTYPE, {"pax_headers": {REDIRECT: "/../../etc"}}),
        ("files/d", tarfile.DIRTYPE, {"pax_headers": {REDIRECT: "a/b"}}),
        ("files/d", tarfile.DIRTYPE, {"pax_headers": {REDIRECT: "/a//b"}}),
    ],
)
def test_what_leads_elsewhere_is_refused(tmp_path: Path, member: Any) -> None:
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(InvalidImageError):
        unpacked(archive(member), tmp_path / "again")
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "secret").stat().st_nlink == 1


def test_links_are_never_followed_by_what_comes_after_them(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    data = archive(
        ("files/l", tarfile.SYMTYPE, {"linkname": str(tmp_path / "outside")}),
        ("files/l/f", tarfile.REGTYPE, {}),
    )
    with pytest.raises(InvalidImageError):
        unpacked(data, tmp_path / "again")
    assert [*(tmp_path / "outside").iterdir()] == []


def test_devices_are_left_out_and_overlay_attributes_of_files_too(tmp_path: Path) -> None:
    again = unpacked(
        archive(
            ("files/disk", tarfile.BLKTYPE, {"devmajor": 8, "devminor": 0}),
            ("files/null", tarfile.CHRTYPE, {"devmajor": 1, "devminor": 3}),
            ("files/f", tarfile.REGTYPE, {"pax_headers": {REDIRECT: "/etc/shadow"}}),
            ("files/d", tarfile.DIRTYPE, {"pax_headers": {"SCHILY.xattr.trusted.evil": "y"}}),
        ),
        tmp_path / "again",
    )
    assert sorted(os.listdir(again)) == ["d", "f"]
    assert os.listxattr(again / "f") == os.listxattr(again / "d") == []


@pytest.mark.parametrize("at", [0, 0.3, 1])
def test_a_cut_archive_is_refused(folder: Path, tmp_path: Path, at: float) -> None:
    data = packed(folder)
    whole = data[: data.rindex(b"end\0")]
    with pytest.raises(InvalidImageError):
        unpacked(whole[: int(len(whole) * at) // 512 * 512], tmp_path / "again")


def test_limits_hold_and_nothing_follows_the_end(tmp_path: Path) -> None:
    many = archive(*((f"files/{n}", tarfile.REGTYPE, {}) for n in range(200)))
    with pytest.raises(InvalidImageError, match="100 members"):
        unpacked(many, tmp_path / "many")
    after = archive(("end", tarfile.REGTYPE, {}), ("files/f", tarfile.REGTYPE, {}))
    with pytest.raises(InvalidImageError, match="follows"):
        unpacked(after, tmp_path / "after")


def test_what_was_written_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox may have millions of files; the engine has the memory of one."""
    add, kept = tarfile.TarFile.addfile, list[int]()

    def watched(tar: Any, *arguments: Any) -> None:
        kept.append(len(tar.members))
        add(tar, *arguments)

    monkeypatch.setattr(tarfile.TarFile, "addfile", watched)
    for number in range(20):
        (tmp_path / str(number)).touch()
    upper.pack(tmp_path, io.BytesIO())
    assert kept == [0] * 22
