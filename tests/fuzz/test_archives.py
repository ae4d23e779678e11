"""Hostile archives for everything that unpacks one: nothing outside, bounded, typed errors only."""

import asyncio
import hashlib
import io
import os
import tarfile
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, cast

import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from atoll import errors
from atoll.agent.files.streams import Stream
from atoll.agent.files.unpacking import Unpacker
from atoll.engine.storage import portable
from atoll.images import layers, upper
from atoll.images.archive import Limits
from atoll.sdk import _unpack
from atoll.wire import attributes
from fuzz.examples import examples

LIMITS = Limits(size=1 << 20, members=20)
OUTSIDE = "OUTSIDE"
"""In a name: the absolute path of the folder that nothing may reach."""

_PARTS = st.sampled_from(
    ["a", "b", ".", "..", "", "l", "outside", ".wh.a", ".wh..wh..opq", "x" * 300]
)
_NAMES = st.one_of(
    st.lists(_PARTS, min_size=1, max_size=3).map("/".join),
    st.sampled_from([f"/{OUTSIDE}/new", f"{OUTSIDE}/f", "../outside/new", "end", "", "a\0b", "\udc80"]),
)  # fmt: skip
_ENDS = st.one_of(
    _NAMES,
    st.sampled_from([OUTSIDE, f"{OUTSIDE}/f", "../outside", "../../outside/f", "l", "files/a"]),
)
_KINDS = st.sampled_from(
    [tarfile.REGTYPE, tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.SYMTYPE,
     tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE,
     tarfile.GNUTYPE_SPARSE, b"Q"]
)  # fmt: skip
_HEADERS = st.dictionaries(
    st.sampled_from(
        ["path", "linkpath", "size", "mtime", "uid", "GNU.sparse.major", "GNU.sparse.map",
         "GNU.sparse.size", "SCHILY.xattr.user.x", "SCHILY.xattr.trusted.overlay.redirect",
         "SCHILY.xattr.trusted.overlay.opaque", "SCHILY.xattr.security.capability", "hdrcharset",
         "SCHILY.xattr.system.posix_acl_access", "SCHILY.xattr.system.posix_acl_default",
         "SCHILY.xattr.", "SCHILY.xattr.user.", "SCHILY.xattr.security.selinux"]
    ),
    st.sampled_from(["../outside/f", "/", "1", "-1", "1e400", "nan", "9" * 30, "y", "a", "", "BINARY",
         "\x02\0\0\0", "\x02\0\0\0\x01\0\x07\0" + 4 * "\udcff", "\x02\0\0\0junk", "v" * 70_000]),
    max_size=2,
)  # fmt: skip


class Entry(NamedTuple):
    """A member, with the size that its header claims."""

    name: str
    kind: bytes
    end: str = ""
    content: bytes = b"x"
    mode: int = 0o644
    mtime: int = 0
    headers: dict[str, str] = {}  # noqa: RUF012  # never changed
    claimed: int | None = None


_ENTRY = st.builds(
    Entry, _NAMES, _KINDS, _ENDS, st.sampled_from([b"", b"x", b"y" * 600]),
    st.sampled_from([0o644, 0, 0o7777, 0o40755]),
    st.sampled_from([0, 1 << 32, 1 << 62, (1 << 70), -5, -(1 << 40)]), _HEADERS,
    st.none() | st.sampled_from([0, 1, 1 << 33, 1 << 60, -1]),
)  # fmt: skip


def _archive(entries: list[Entry], prefix: str = "") -> bytes:
    """Return the archive of *entries*, whose names begin with *prefix*."""
    told = b""
    for entry in entries:
        info = tarfile.TarInfo(prefix + entry.name if entry.name != "end" else "end")
        info.type, info.mode, info.mtime = entry.kind, entry.mode, entry.mtime
        info.linkname = entry.end
        info.size = len(entry.content) if entry.claimed is None else entry.claimed
        info.pax_headers = dict(entry.headers)
        try:
            told += _header(info, pax=entry.claimed is None)
        except (ValueError, OverflowError):
            continue  # no header can say it
        told += entry.content + bytes(-len(entry.content) % tarfile.BLOCKSIZE)
    return told + bytes(2 * tarfile.BLOCKSIZE)


def _header(info: tarfile.TarInfo, *, pax: bool) -> bytes:
    if pax:
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


class Hostile(NamedTuple):
    """Members, and what is done to the archive of them."""

    entries: list[Entry]
    cut: int = 0
    noise: bytes = b""
    at: int = 0

    def archive(self, outside: Path, prefix: str = "") -> bytes:
        data = _archive([_placed(entry, outside) for entry in self.entries], prefix)
        at = self.at % len(data)
        data = data[:at] + self.noise + data[at + len(self.noise) :]
        return data[: len(data) - self.cut % len(data)]


def _placed(entry: Entry, outside: Path) -> Entry:
    path = str(outside)
    return entry._replace(
        name=entry.name.replace(OUTSIDE, path), end=entry.end.replace(OUTSIDE, path)
    )


_THROUGH = st.builds(
    lambda end, kind: [
        Entry("l", tarfile.SYMTYPE, end, b""), Entry("l/new", kind, "l", b""), Entry("end", b"0")
    ],
    st.sampled_from([OUTSIDE, "../outside", "../../outside", "a/../../outside"]),
    st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE]),
)  # fmt: skip
_BESIDE = st.sampled_from(
    ["../outside", "../new", "a/../../new", "../../outside/new", f"/{OUTSIDE}/new"]
).map(lambda name: [Entry(name, tarfile.REGTYPE)])
_LEADING = st.sampled_from([OUTSIDE, "..", "../../outside", "a/../.."]).map(
    lambda end: [Entry("l", tarfile.SYMTYPE, end, b"")]
)
_HOSTILE = st.builds(
    Hostile, st.lists(_ENTRY, max_size=4) | _THROUGH | _BESIDE | _LEADING
) | st.builds(
    Hostile, st.lists(_ENTRY, max_size=4), st.integers(0, 3_000), st.binary(max_size=3),
    st.integers(0, 5_000),
)  # fmt: skip


def _known() -> Hostile:
    """Return what every reader is tried with: a member behind a link that leads out."""
    link = Entry("l", tarfile.SYMTYPE, OUTSIDE, b"")
    return Hostile([link, Entry("l/new", tarfile.REGTYPE)])


@contextmanager
def _watched() -> Iterator[tuple[Path, Path]]:
    """Have a folder to unpack in, and one beside it in which nothing may change."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        outside, room = top / "outside", top / "room"
        outside.mkdir()
        room.mkdir()
        (outside / "f").write_bytes(b"kept")
        before = _state(outside)
        yield room / "target", outside
        assert _state(outside) == before
        assert sorted(os.listdir(top)) == ["outside", "room"]
        assert set(os.listdir(room)) <= {"target"}
        _check_size(room)


def _state(folder: Path) -> list[tuple[object, ...]]:
    found = []
    for path in (folder, *sorted(folder.rglob("*"))):
        told = path.lstat()
        found.append((path, told.st_mode, told.st_uid, told.st_nlink, told.st_mtime_ns))
    return [*found, ((folder / "f").read_bytes(),)]


def _check_size(room: Path) -> None:
    used = [os.lstat(Path(folder, name)) for folder, _, names in os.walk(room) for name in names]
    assert sum(told.st_size for told in used) <= 4 * LIMITS.size


def _layer(data: bytes, target: Path) -> None:
    layers.unpack(io.BytesIO(data), target, hashlib.sha256(data).hexdigest(), LIMITS)


def _upper(data: bytes, target: Path) -> None:
    target.mkdir()
    upper.unpack(io.BytesIO(data), target, LIMITS)


def _of_client(data: bytes, target: Path) -> None:
    target.mkdir()
    _unpack.unpack(io.BytesIO(data), target)
    _no_link_outside(target)


class _Body:
    """The body of an upload, in pieces."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)

    def body(self) -> Iterator[memoryview]:
        for at in range(0, len(self._data), 700):
            yield self._data[at : at + 700]


def _of_agent(data: bytes, target: Path, *, restore: bool = False) -> None:
    target.mkdir()
    top = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    unpacker = Unpacker(top, outside_links=restore, keep_owner=restore)
    try:
        unpacker.unpack(cast("Stream", _Body(data)))
        if not restore:
            _no_link_outside(target)
    finally:
        unpacker.close()
        os.close(top)


Unpack = Callable[[bytes, Path], None]


def _no_link_outside(target: Path) -> None:
    for folder, folders, files in os.walk(target):
        for name in (*folders, *files):
            path = Path(folder, name)
            if path.is_symlink():
                with suppress(OSError, RuntimeError):  # a loop leads nowhere
                    assert path.resolve().is_relative_to(target.resolve())


def _tried(unpack: Unpack, hostile: Hostile, prefix: str, *more: type[Exception]) -> None:
    with _watched() as (target, outside), suppress(errors.SandboxError, *more):
        unpack(hostile.archive(outside, prefix), target)


@examples(80)
@given(_HOSTILE)
@example(Hostile([Entry(".wh.a", tarfile.REGTYPE, claimed=1 << 60)]))
@example(_known())
def test_a_layer_reaches_nothing_outside(hostile: Hostile) -> None:
    _tried(_layer, hostile, "")


@examples(80)
@given(_HOSTILE, st.sampled_from(["files/", "files/", ""]))
@example(Hostile([Entry("end", tarfile.REGTYPE, claimed=1 << 60)]), "files/")
@example(_known(), "files/")
def test_a_snapshot_reaches_nothing_outside(hostile: Hostile, prefix: str) -> None:
    _tried(_upper, hostile, prefix)


@examples(80)
@given(_HOSTILE)
@example(_known())
def test_what_a_sandbox_sends_reaches_nothing_of_its_client(hostile: Hostile) -> None:
    _tried(_of_client, hostile, "")


@examples(80)
@given(_HOSTILE)
@example(_known())
def test_an_upload_reaches_nothing_outside(hostile: Hostile) -> None:
    """What the kernel refuses (a name that is too long) is told by whoever calls."""
    _tried(_of_agent, hostile, "", OSError)


def _restored(data: bytes, target: Path) -> None:
    _of_agent(data, target, restore=True)
    for folder, folders, files in os.walk(target):
        for name in (*folders, *files):
            kept = os.listxattr(Path(folder, name), follow_symlinks=False)
            assert all(map(attributes.of_user, kept)), kept


@examples(80)
@given(_HOSTILE)
@example(_known())
def test_a_backup_reaches_nothing_outside(hostile: Hostile) -> None:
    """Of attributes only those of users are set."""
    _tried(_restored, hostile, "", OSError)


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 900):
        yield data[at : at + 900]


async def _imported(data: bytes, target: Path) -> None:
    _, rest = await portable.split(_pieces(data))
    await portable.unpack(rest, target, LIMITS)


def _whole(archive: bytes, manifest: bytes) -> bytes:
    return portable.MAGIC + manifest + b"\n" + zstandard.compress(archive, 1)


_MANIFEST = (
    b'{"image":"a","digest":"b","instance_type":"c","disk":1,"sandbox":"s",'
    b'"created_at":"2026-01-01T00:00:00Z"}'
)
_BOMB = zstandard.compress(bytes(1 << 24), 1)
_GOOD = _archive([Entry("files", tarfile.DIRTYPE, content=b""), Entry("end", tarfile.REGTYPE)])


@examples(60)
@given(
    st.sampled_from([_GOOD, _GOOD[:700], b""]),
    st.sampled_from([_MANIFEST, b"{}", b"["]),
    st.integers(0, 300),
    st.binary(max_size=2),
    st.integers(0, 300),
    st.sampled_from([b"", b"x", _BOMB]),
)
@example(bytes(1 << 24), _MANIFEST, 0, b"", 0, b"")
@example(
    _archive([Entry("files/a", tarfile.REGTYPE, content=bytes(1 << 23))]), _MANIFEST, 0, b"", 0, b""
)
@example(b"", b"[" * 100_000, 0, b"", 0, b"")
@example(b"", b"x" * (1 << 20), 0, b"", 0, b"")
def test_an_imported_snapshot_is_whole_or_refused(
    archive: bytes, manifest: bytes, at: int, noise: bytes, cut: int, more: bytes
) -> None:
    data = _whole(archive, manifest)
    data = data[:at] + noise + data[at + len(noise) :]
    data = data[: len(data) - cut] + more
    with _watched() as (target, _):
        target.mkdir()
        with suppress(errors.SandboxError):
            asyncio.run(_imported(data, target))
