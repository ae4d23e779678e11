"""The mount table of this process, as the kernel prints it. Parsing is pure.

It survives the engine, so a new one learns from it what is mounted. Reading it costs 20 ms with
1,000 sandboxes: it is for opening, listing and removing, not for every start.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from atoll.host import linux

_ESCAPE = re.compile(rb"\\([0-7]{3})")


class MountEntry(NamedTuple):
    """One mount. `source` is what the file system calls its device; `root` its part shown here."""

    target: Path
    source: str
    fstype: str
    root: str
    options: frozenset[str]
    shared: bool


def parse_mountinfo(text: bytes) -> list[MountEntry]:
    """Parse ``/proc/<pid>/mountinfo``; later entries lie over earlier ones at the same target."""
    return [_entry(line.split(b" ")) for line in text.splitlines() if line]


def _entry(fields: list[bytes]) -> MountEntry:
    dash = fields.index(b"-", 6)
    return MountEntry(
        target=Path(_text(fields[4])),
        source=_text(fields[dash + 2]),
        fstype=_text(fields[dash + 1]),
        root=_text(fields[3]),
        options=frozenset(fields[5].decode().split(",")),
        shared=any(f.startswith(b"shared:") for f in fields[6:dash]),
    )


def _text(field: bytes) -> str:
    plain = _ESCAPE.sub(lambda m: bytes([int(m[1], 8)]), field) if b"\\" in field else field
    return plain.decode(errors="surrogateescape")


def read_mounts(marker: str = "") -> list[MountEntry]:
    """Return the mounts this process sees; only those with *marker* in their line, if given."""
    table = Path("/proc/self/mountinfo").read_bytes()
    wanted = os.fsencode(marker)
    return parse_mountinfo(b"\n".join(line for line in table.splitlines() if wanted in line))


def mounts_below(folder: Path, mounts: Iterable[MountEntry]) -> list[MountEntry]:
    """Return the mounts strictly below *folder*, the last made first: the order to unmount in."""
    return [m for m in mounts if folder in m.target.parents][::-1]


def mount_at(target: Path, mounts: Iterable[MountEntry]) -> MountEntry | None:
    """Return the top mount at *target*, if it is a mount point."""
    return next((m for m in reversed(list(mounts)) if m.target == target), None)


def holding_mount(path: Path, mounts: Iterable[MountEntry]) -> MountEntry:
    """Return the mount that *path* (absolute, without links) lies on.

    Raises:
        LookupError: the table has no root, so it is none.
    """
    chain = (path, *path.parents)
    holders = [m for m in mounts if m.target in chain]
    if not holders:
        raise LookupError(f"{path} lies on no mount")
    return max(reversed(holders), key=lambda m: len(m.target.parts))


def stop_propagation(folder: Path) -> None:
    """Make sure that what is mounted below *folder* appears in no other mount namespace.

    Where the mount that holds it is shared (systemd's default), the folder is bound over itself
    and that made private. Does nothing the second time.
    """
    if holding_mount(folder, read_mounts()).shared:
        linux.mount(folder, folder, flags=linux.MS_BIND)
        linux.mount("", folder, flags=linux.MS_PRIVATE)
