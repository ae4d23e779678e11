"""No archive reaches outside its target, fills the disk or memory, or fools overlay."""

import hashlib
import io
import os
import stat
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atoll.errors import InvalidImageError
from atoll.images import archive as archives
from atoll.images.archive import Limits
from atoll.images.layers import unpack

LIMITS = Limits(size=1 << 20, members=50)


def member(name: str, kind: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.uid, info.gid = os.getuid(), os.getgid()
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def archive(*members: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for item in members:
            info, data = item if isinstance(item, tuple) else (item, b"")
            info.size = len(data) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def put(root: Path, data: bytes, limits: Limits = LIMITS) -> Path:
    root.mkdir(exist_ok=True)
    target = root / "layer"
    unpack(io.BytesIO(data), target, hashlib.sha256(data).hexdigest(), limits)
    return target


def names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_files_keep_content_mode_time_and_links(tmp_path: Path) -> None:
    target = put(
        tmp_path,
        archive(
            member("a/", tarfile.DIRTYPE, mode=0o1777, mtime=1000),
            (member("a/f", mode=0o4755, mtime=2000.5), b"data"),
            member("a/hard", tarfile.LNKTYPE, linkname="./a/f"),
            member("a/soft", tarfile.SYMTYPE, linkname="/etc/passwd"),
            member("a/pipe", tarfile.FIFOTYPE),
            (member("./implied/parent"), b"x"),
        ),
    )
    file = target / "a/f"
    assert file.read_bytes() == b"data"
    assert stat.S_IMODE(file.stat().st_mode) == 0o4755
    assert file.stat().st_mtime == 2000.5
    assert file.stat().st_ino == (target / "a/hard").stat().st_ino
    assert os.readlink(target / "a/soft") == "/etc/passwd"
    assert stat.S_ISFIFO((target / "a/pipe").lstat().st_mode)
    assert stat.S_IMODE((target / "a").stat().st_mode) == 0o1777
    assert (target / "a").stat().st_mtime == 1000
    assert (target / "implied/parent").exists()


@pytest.mark.parametrize(
    "name", ["../out", "a/../../out", "/../out", "a/..", "..", "x/../out", "./../out"]
)
def test_names_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidImageError):
        put(tmp_path, archive((member(name), b"x")))
    assert not (tmp_path / "out").exists()


def test_an_absolute_name_is_inside_the_layer(tmp_path: Path) -> None:
    target = put(tmp_path, archive((member("/etc/atoll-test"), b"x")))
    assert names(target) == ["etc", "etc/atoll-test"]


@pytest.mark.parametrize("link", ["..", "/", "{outside}"])
def test_a_link_is_never_followed_to_write_through_it(tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    link = link.format(outside=outside)
    data = archive(member("d", tarfile.SYMTYPE, linkname=link), (member("d/outside-file"), b"x"))
    with pytest.raises(InvalidImageError):
        put(tmp_path, data)
    assert not list(tmp_path.glob("**/outside-file"))


def test_a_file_written_over_a_link_replaces_the_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    data = archive(member("f", tarfile.SYMTYPE, linkname=str(outside)), (member("f"), b"theirs"))
    target = put(tmp_path, data)
    assert outside.read_text() == "mine"
    assert (target / "f").read_bytes() == b"theirs"
    assert not (target / "f").is_symlink()


@pytest.mark.parametrize("target", ["../outside", "/outside", "missing", "d", "s", "s/x", ""])
def test_a_hard_link_to_anything_but_a_file_of_the_layer_is_refused(
    tmp_path: Path, target: str
) -> None:
    (tmp_path / "outside").write_text("x")
    data = archive(
        member("d", tarfile.DIRTYPE),
        member("s", tarfile.SYMTYPE, linkname=str(tmp_path)),
        member("link", tarfile.LNKTYPE, linkname=target),
    )
    with pytest.raises(InvalidImageError):
        put(tmp_path, data)


def test_the_attributes_of_a_directory_are_not_set_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    data = archive(
        member("d", tarfile.DIRTYPE, mode=0o777),
        member("d", tarfile.SYMTYPE, linkname=str(outside)),
    )
    put(tmp_path, data)
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_device_nodes_are_left_out(tmp_path: Path, kind: bytes) -> None:
    """A 0:0 device would delete a file of a lower layer; others would be the host's devices."""
    target = put(tmp_path, archive(member("dev/x", kind), (member("f"), b"")))
    assert names(target) == ["dev", "f"]


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="a user keeps no owners and attributes")


@as_root
def test_attributes_that_steer_overlay_are_left_out(tmp_path: Path) -> None:
    headers = {
        "SCHILY.xattr.trusted.overlay.redirect": "/etc",
        "SCHILY.xattr.trusted.overlay.opaque": "y",
        "SCHILY.xattr.user.overlay.opaque": "y",
        "SCHILY.xattr.user.kept": "yes",
    }
    target = put(tmp_path, archive(member("d", tarfile.DIRTYPE, pax_headers=headers)))
    assert [a for a in os.listxattr(target / "d") if a.startswith(("user.", "trusted."))] == [
        "user.kept"
    ]


def test_more_data_than_the_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidImageError, match="bytes unpacked"):
        put(tmp_path, archive((member("f"), bytes(LIMITS.size))))


def test_more_members_than_the_limit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidImageError, match="members"):
        put(tmp_path, archive(*((member(str(n)), b"") for n in range(LIMITS.members + 1))))


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE,
        tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK,
    ],
)  # fmt: skip
def test_a_header_that_claims_gigabytes_is_refused_before_it_is_read(
    tmp_path: Path, kind: bytes
) -> None:
    header = member("x", kind, size=4 << 30).tobuf(tarfile.GNU_FORMAT)
    limits = Limits(size=1 << 40)
    with pytest.raises(InvalidImageError, match="headers of more than"):
        unpack(io.BytesIO(header), tmp_path / "layer", "", limits)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_headers_that_add_up_are_refused(tmp_path: Path, kind: bytes) -> None:
    """Each is small enough; tarfile keeps all of those in a row, and of those for every member."""
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 600_000
    record = b"599999 user.x=".ljust(599_998, b"x") + b"\n"
    one = header.tobuf(tarfile.USTAR_FORMAT) + record.ljust(600_064, b"\0")
    data = one + (archive(member("a"))[:512] if kind == tarfile.XGLTYPE else b"") + one
    with pytest.raises(InvalidImageError, match="headers of more than"):
        put(tmp_path, data + archive(member("b")), Limits(size=1 << 22))


def test_folders_take_a_bounded_part_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compressed kilobyte of them may stand for gigabytes that are kept until the end."""
    monkeypatch.setattr(archives, "_MAX_REMEMBERED", 100_000)
    large = {"SCHILY.xattr.user.x": "x" * 10_000}
    other = {"comment": "x" * 10_000}
    limits = Limits(size=1 << 22)
    for number, headers in enumerate(({}, other)):
        folders = [member(f"d{n}", tarfile.DIRTYPE, pax_headers=headers) for n in range(100)]
        assert len(names(put(tmp_path / str(number), archive(*folders), limits))) == 100
    folders = [member(f"d{n}", tarfile.DIRTYPE, pax_headers=large) for n in range(100)]
    with pytest.raises(InvalidImageError, match="too much memory"):
        put(tmp_path / "large", archive(*folders), limits)


def test_an_error_holds_no_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It and the frames it comes from keep each other until the collector looks, which is rare."""
    monkeypatch.setattr(archives, "_MAX_REMEMBERED", 10_000)
    tree = archives.Tree(tmp_path)
    data = io.BytesIO(archive(*(member(f"d{n}", tarfile.DIRTYPE) for n in range(50))))
    with pytest.raises(InvalidImageError, match="too much memory"):
        archives.fill(tree, archives.Bounded(data, 1 << 20), LIMITS)
    assert not tree._directories


def test_members_that_were_placed_are_forgotten(tmp_path: Path) -> None:
    class Watched(archives.Tree):
        def place(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
            kept.append(len(vars(tar)["members"]))
            super().place(tar, member)

    kept: list[int] = []
    data = io.BytesIO(archive(*(member(f"f{n}") for n in range(20))))
    archives.fill(Watched(tmp_path), archives.Bounded(data, 1 << 20), LIMITS)
    assert kept == [0] * 20


@pytest.mark.parametrize("version", ["0.1", "1.0"])
def test_sparse_members_are_refused(tmp_path: Path, version: str) -> None:
    """Their maps are read whole into memory, and their size is a claim."""
    headers = {
        "0.1": {"GNU.sparse.map": "0,1", "GNU.sparse.size": "1"},
        "1.0": {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"},
    }[version]
    with pytest.raises(InvalidImageError, match="sparse"):
        put(tmp_path, archive((member("f", pax_headers=headers), b"x" * 512)))


def test_old_sparse_members_are_refused(tmp_path: Path) -> None:
    header = member("x", tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(InvalidImageError, match="sparse"):
        put(tmp_path, header + bytes(1024))


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    data = archive((member("f"), bytes(4096)))[:2000]
    with pytest.raises(InvalidImageError):
        put(tmp_path, data)


def test_thousands_of_headers_in_a_row_are_refused(tmp_path: Path) -> None:
    """tarfile recurses once for each."""
    record = b"11 a=bbbbb\n"
    header = member("x", tarfile.XHDTYPE, size=len(record)).tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(InvalidImageError):
        put(tmp_path, (header + record.ljust(512, b"\0")) * 2_000, Limits())


@as_root
def test_impossible_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidImageError):
        put(tmp_path, archive((member("f", uid=1 << 60), b"")))


def test_a_time_no_file_system_has_is_cut(tmp_path: Path) -> None:
    assert (put(tmp_path, archive((member("f", mtime=1e18), b""))) / "f").exists()


PART = st.sampled_from(["a", "b", "..", ".", "", ".wh.a", ".wh..wh.x", "c" * 300])
PATH = st.lists(PART, max_size=4).map("/".join)
KIND = st.sampled_from(
    [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, b"Z"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(PATH, KIND, PATH), max_size=6))
def test_no_sequence_of_members_writes_outside(
    tmp_path_factory: pytest.TempPathFactory, items: list[tuple[str, bytes, str]]
) -> None:
    root = tmp_path_factory.mktemp("fuzz")
    entries = [member(name or "x", kind, linkname=link or "/") for name, kind, link in items]
    try:
        put(root, archive(*entries))
    except InvalidImageError:
        pass
    except OSError as error:
        assert error.errno == 1  # whiteouts need root
    assert os.listdir(root) == ["layer"]
