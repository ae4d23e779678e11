"""The little of ELF that is needed to bring an interpreter along. Pure."""

import re
import struct

_PT_INTERP = 3
_EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
_PHDR = struct.Struct("<IIQQQQQQ")

_OF_THE_SYSTEM = re.compile(rb"(?<=\0)/(?:etc|usr|var|lib(?:64|32|x32)?)(?=/)")
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


def seal(image: bytes) -> bytes:
    """Return a loader or C library that never looks at a file of the system it runs in.

    Whoever is root inside writes those files: preloaded libraries, search directories, character
    conversions, locales and time zones all end up as code or parsed data in the process. The
    first part of every such path becomes /sys, which is an empty read-only file system there.
    Only it is replaced, in its own length: linkers let another string be the tail of this one.
    """
    return _OF_THE_SYSTEM.sub(lambda match: b"/sys".ljust(len(match[0]), b"/"), image)


def seal_loader(image: bytes) -> bytes:
    """Return a sealed glibc loader.

    Raises:
        ValueError: this is another one, whose files are not known.
    """
    if _PRELOAD not in image:
        raise ValueError("not a glibc loader: it knows no /etc/ld.so.preload")
    return seal(image)
