"""The little of ELF that is needed to bring an interpreter along. Pure."""

import re
import struct

_PT_INTERP = 3
_EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
_PHDR = struct.Struct("<IIQQQQQQ")

_SEARCHED = re.compile(rb"/(?:usr/)?lib(?:64|x32|32)?/(?:[A-Za-z0-9_]+-linux-gnu[a-z0-9]*/)?\0")
_CONSULTED = re.compile(rb"/etc/(?:ld\.so\.preload|ld\.so\.cache|suid-debug)\0")
_PRELOAD = b"/etc/ld.so.preload\0"


def interpreter(image: bytes) -> str | None:
    """Return the loader a 64-bit little-endian executable asks for; None for a static one.

    Raises:
        ValueError: *image* is not such a file.
    """
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    header = _EHDR.unpack_from(image)
    offset, size, count = header[5], header[9], header[10]
    for index in range(count):
        segment = _PHDR.unpack_from(image, offset + index * size)
        if segment[0] == _PT_INTERP:
            start, length = segment[2], segment[5]
            return image[start : start + length].rstrip(b"\0").decode()
    return None


def seal_loader(image: bytes) -> bytes:
    """Return a glibc loader that never looks at a file of the system it runs in.

    Whoever is root inside writes those files: with them it could have its own code loaded into
    the next process that starts with this loader. Every such path becomes one of the same
    length below /sys, which is an empty read-only file system there.

    Raises:
        ValueError: this is not a glibc loader (it has no preload file).
    """
    if _PRELOAD not in image:
        raise ValueError("not a glibc loader: it knows no /etc/ld.so.preload")
    return _SEARCHED.sub(_elsewhere, _CONSULTED.sub(_elsewhere, image))


def _elsewhere(match: re.Match[bytes]) -> bytes:
    """`/lib/` is the shortest: `/sys/` has its length. The rest is filled up with slashes."""
    path = match[0].rstrip(b"\0")
    name = b"/sys/" + b"-" * (len(path) - len(b"/sys/"))
    return (name[:-1] + b"/" if path.endswith(b"/") else name) + b"\0"
