"""Reading one file: what it is, then its bytes.

Text or binary is decided by content: valid UTF-8 or not. The first `SNIFF` bytes decide, which is
the whole of most files; a larger file's answer is for that part, since telling more would mean
reading it twice.

Only regular files are read. A FIFO, socket or device could block, act or never end.
"""

import codecs
import os
import stat
from typing import Any, Final

from atoll import errors
from atoll.agent.files import infos, mime, pathnames
from atoll.agent.files.requests import Fields
from atoll.agent.files.streams import Stream
from atoll.wire.frames import Kind

SNIFF: Final = 4 << 20
"""Bytes that decide whether a file is text."""

MAX_UNSIZED: Final = 16 << 20
"""Bytes of a file of /proc or /sys, whose size is known only when it was read."""


def read_file(stream: Stream, fields: Fields) -> None:
    """Answer with `FileMeta`, the bytes from ``offset`` on (``length`` of them), and END."""
    path = fields.path()
    offset, length = fields.integer("offset", 0), fields.optional_integer("length")
    with pathnames.blame(path):
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            found = check_regular(os.fstat(file), path)
            if found.st_size == 0 and (content := _read_unsized(file, path)):
                _answer(stream, path, found, content, len(content))
                _send_content(stream, content, *_extent(len(content), offset, length, path))
                return
            first, count = _extent(found.st_size, offset, length, path)
            _answer(stream, path, found, os.pread(file, SNIFF, 0), found.st_size)
            _send_file(stream, file, path, first, count)
        finally:
            os.close(file)


def check_regular(found: os.stat_result, path: bytes) -> os.stat_result:
    """Return *found*; raise when it is not a regular file."""
    if stat.S_ISDIR(found.st_mode):
        raise errors.IsDirectoryError(
            f"Is a directory: {pathnames.to_text(path)}",
            context={"path": pathnames.to_text(path)},
            suggestion="list it with list_files, or fetch it with download",
        )
    if not stat.S_ISREG(found.st_mode):
        raise errors.FilesystemError(
            f"Not a regular file: {pathnames.to_text(path)}",
            context={"path": pathnames.to_text(path)},
            suggestion="read pipes, sockets and devices with a command",
        )
    return found


def is_text(data: bytes, *, whole: bool) -> bool:
    """Tell whether *data* is valid UTF-8; a character cut at its end is fine unless *whole*."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, final=whole)
    except UnicodeDecodeError:
        return False
    return True


def _answer(stream: Stream, path: bytes, found: os.stat_result, head: bytes, size: int) -> None:
    text = is_text(head, whole=len(head) >= size)
    meta: dict[str, Any] = {
        "path": pathnames.to_text(path),
        "size": size,
        "mimeType": mime.guess(path, head, text=text),
        "isBinary": not text,
        "encoding": "utf-8" if text else "base64",
        "etag": infos.etag(found),
        "mode": stat.S_IMODE(found.st_mode),
        "modifiedAt": infos.timestamp(found.st_mtime_ns),
    }
    stream.send_json(Kind.REPLY, meta)


def _extent(size: int, offset: int, length: int | None, path: bytes) -> tuple[int, int]:
    if offset > size:
        raise errors.RangeNotSatisfiableError(
            f"offset {offset} is beyond the end of {pathnames.to_text(path)}",
            context={"path": pathnames.to_text(path), "size": size},
        )
    return offset, min(size - offset, size if length is None else length)


def _read_unsized(file: int, path: bytes) -> bytes:
    parts: list[bytes] = []
    total = 0
    while part := os.read(file, 1 << 20):
        parts.append(part)
        total += len(part)
        if total > MAX_UNSIZED:
            raise errors.FileTooLargeError(
                f"{pathnames.to_text(path)} has no size and more than {MAX_UNSIZED} bytes",
                context={"path": pathnames.to_text(path), "limit": MAX_UNSIZED},
                suggestion="read it with a command",
            )
    return b"".join(parts)


def _send_content(stream: Stream, content: bytes, offset: int, count: int) -> None:
    view = memoryview(content)[offset : offset + count]
    for start in range(0, count, 1 << 20):
        stream.send(Kind.DATA, view[start : start + (1 << 20)])
    stream.send_json(Kind.END, {"size": count})


def _send_file(stream: Stream, file: int, path: bytes, offset: int, count: int) -> None:
    sent = stream.send_file(file, offset, count)
    if sent < count:
        raise errors.FilesystemError(
            f"{pathnames.to_text(path)} became shorter while it was read",
            context={"path": pathnames.to_text(path), "bytes_read": sent, "size": count},
        )
    stream.send_json(Kind.END, {"size": count, "etag": infos.etag(os.fstat(file))})
