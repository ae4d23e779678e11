"""Extended attributes of files as records of a tar archive (``SCHILY.xattr.``, as other tars do).

What a user may set travels: ``user.*`` and POSIX access lists. Overlay's own never do: they would say
where lookups lead.
"""

import errno
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

PREFIX: Final = "SCHILY.xattr."
ACCESS: Final = "system.posix_acl_access"
DEFAULT: Final = "system.posix_acl_default"

MAX_TOLD: Final = 1 << 20
"""Of one member of an archive that somebody else may have written."""

MAX_NUMBER: Final = 1_000
MAX_BYTES: Final = 1 << 18
"""Of one file, names and values together; ext4 has 4 kB of room for them, btrfs has no end."""

_NOT_THERE: Final = frozenset({errno.EOPNOTSUPP, errno.EPERM, errno.EACCES})
_NOT_VALID: Final = frozenset({errno.EINVAL, errno.ERANGE, errno.E2BIG})
_GROUP: Final = 0x04
"""Tag of an access list's entry for the file's own group."""


def of_user(name: str) -> bool:
    """Whether an attribute is content that a user may set."""
    overlay = name.startswith("user.overlay.")
    return name in {ACCESS, DEFAULT} or (name.startswith("user.") and not overlay)


def read(descriptor: int, wanted: Callable[[str], bool] = of_user) -> dict[str, str]:
    """Return the records of a file's *wanted* attributes.

    Raises:
        ValueError: they are more than an archive may have.
    """
    try:
        names = [name for name in os.listxattr(descriptor) if wanted(name)]
    except OSError as error:
        if error.errno in _NOT_VALID:  # more names than a call can tell, which is 64 KiB
            raise _too_many() from error
        if error.errno in _NOT_THERE:
            return {}
        raise
    found: dict[str, str] = {}
    size = 0
    for name in names:
        with suppress(FileNotFoundError):
            value = _value(descriptor, name)
            if value is None:
                continue
            size += len(name) + len(value)
            if size > MAX_BYTES or len(found) >= MAX_NUMBER:
                raise _too_many()
            found[record(name)] = value.decode("utf-8", "surrogateescape")
    return found


def _value(descriptor: int, name: str) -> bytes | None:
    try:
        return os.getxattr(descriptor, name)
    except OSError as error:
        if error.errno == errno.ENODATA:  # it went meanwhile
            return None
        raise


def record(name: str) -> str:
    """Return the key of an attribute's record, in which ``=`` ends the key."""
    return PREFIX + name.replace("%", "%25").replace("=", "%3D")


def told(headers: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """Yield the names and values that a member's records tell of.

    Raises:
        ValueError: they are more than an archive may have.
    """
    size = 0
    for key, text in headers.items():
        if not key.startswith(PREFIX):
            continue
        name = key.removeprefix(PREFIX).replace("%3D", "=").replace("%25", "%")
        value = text.encode("utf-8", "surrogateescape")
        size += len(name) + len(value)
        if size > MAX_TOLD:
            raise ValueError(f"its extended attributes are over {MAX_TOLD:,} bytes")
        yield name, value


def put_back(descriptor: int, headers: Mapping[str, str], mode: int) -> int:
    """Set what a user may set and the file system takes.

    Returns:
        The mode to set: *mode*, or one in which the group has no more than its own, where there are
        no access lists. What a mode says of the group of a file with a list is the most that anyone
        in the list has.

    Raises:
        ValueError: a value is not valid, or they are more than an archive may have.
        OSError: there is no room for them.
    """
    for name, value in list(told(headers)):  # all are looked at before one is set
        if not of_user(name):
            continue
        try:
            os.setxattr(descriptor, name, value)
        except OSError as error:
            if error.errno in _NOT_VALID:
                raise ValueError(f"its attribute {name[:100]!r} is not valid") from error
            if error.errno not in _NOT_THERE:
                raise
            if name == ACCESS:
                mode = _without_list(value, mode)
    return mode


def _without_list(value: bytes, mode: int) -> int:
    try:
        entries = list(struct.iter_unpack("<HHI", value[4:]))
    except struct.error as error:
        raise ValueError(f"its attribute {ACCESS!r} is not valid") from error
    group: int = next((allowed for tag, allowed, _ in entries if tag == _GROUP), 0)
    return mode & ~(0o070 & ~(group << 3))


def _too_many() -> ValueError:
    return ValueError(
        f"its extended attributes are more than {MAX_NUMBER}, or than {MAX_BYTES:,} bytes"
    )
