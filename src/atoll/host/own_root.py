"""Programs as root of a user namespace of this user's: for files that it owns and may not enter.

A sandbox's root makes folders and files that even their owner cannot open (mode 000). To copy,
measure or remove them takes what root may do, and only over what this user owns.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from atoll.errors import FilesystemError, NoSpaceError
from atoll.host import process

ENTER = ("unshare", "--user", "--map-root-user", "--")
"""In front of a command line. util-linux is everywhere; newuidmap is not needed."""

TIMEOUT = 1_800.0
"""Seconds for one copy or removal: a layer may hold a million files."""


async def run(argv: Sequence[str | Path]) -> bytes:
    """Run a program to its end and return what it printed.

    Raises:
        NoSpaceError: the disk is full.
        FilesystemError: it failed.
    """
    done = await process.run([*ENTER, *argv], timeout=TIMEOUT)
    if done.code == 0:
        return done.stdout
    full = "No space left" in done.message or "quota exceeded" in done.message
    kind = NoSpaceError if full else FilesystemError
    raise kind(f"{argv[0]} failed: {done.message}", context={"tool": str(argv[0])})


async def copy(source: Path, target: Path) -> None:
    """Copy a folder with all that overlay keeps in it; blocks are shared where they can be."""
    await run(["cp", "--archive", "--reflink=auto", "--sparse=auto", "--", source, target])


async def remove(path: Path) -> None:
    """Remove a folder and all in it. Idempotent."""
    if is_there(path):
        await run(["rm", "-rf", "--one-file-system", "--", path])


async def usage(path: Path) -> int:
    """Return the bytes that a folder takes on the disk."""
    text = await run(["du", "--summarize", "--block-size=1", "--one-file-system", "--", path])
    return int(text.split(b"\t", 1)[0])


def is_there(path: Path) -> bool:
    """Whether there is anything of this name, also a link to nowhere."""
    return os.path.lexists(path)
