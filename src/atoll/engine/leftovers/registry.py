"""Which engines this host has, and which of them are gone for good.

An engine that is killed comes back to its state directory and takes over what it finds. One
whose directory was removed meanwhile cannot: its mounts, namespaces, packet filter and ids would
stay until the host restarts. So each engine has an entry in a directory of the host, named by
its id, with the place of its state, and holds a lock on it: the kernel lets go of that with the
process. Entry without lock and state: nobody is left who could want what that engine made.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from atoll.errors import ResourceBusyError
from atoll.host.threads import run_to_end

ENTRIES = Path("/run/atoll/engines")
"""Gone with a restart of the host, as is everything an engine leaves outside its directory."""

PATIENCE = 10.0
"""Seconds to wait for a lock that others hold for a moment only: removing takes longest."""

STORE = "atoll.db"
"""The file without which a directory is nobody's state any more."""


class Gone(NamedTuple):
    """An engine that will not come back."""

    engine_id: str
    state_dir: Path


class Registry:
    """The entries of all engines of a host.

    Args:
        entries: the directory they are in.
    """

    def __init__(self, entries: Path = ENTRIES) -> None:
        self._entries = entries

    async def enter(self, engine_id: str, state_dir: Path) -> int:
        """Say that the engine runs; return the descriptor that says so until `leave`.

        The caller holds the lock of *state_dir*.

        Raises:
            ResourceBusyError: another engine has this id.
        """
        return await run_to_end(self._enter, engine_id, state_dir)

    def _enter(self, engine_id: str, state_dir: Path) -> int:
        self._entries.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._entries / engine_id
        deadline = time.monotonic() + PATIENCE
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if _locks(fd) and _is(fd, path):
                os.ftruncate(fd, 0)
                os.pwrite(fd, os.fsencode(state_dir.absolute()), 0)
                return fd
            os.close(fd)
            if time.monotonic() > deadline:
                raise ResourceBusyError(
                    f"an engine with the id of this one ({engine_id}) runs on this host",
                    context={"path": str(state_dir), "engine": engine_id},
                    suggestion="a state directory that is a copy cannot be used beside the original",
                )
            time.sleep(0.05)  # one that looks for engines that are gone has it for a moment

    def leave(self, entry: int, engine_id: str, *, clean: bool) -> None:
        """Close the descriptor; with *clean* nothing is left of the engine, so its entry goes too."""
        if clean:
            (self._entries / engine_id).unlink(missing_ok=True)
        os.close(entry)

    @contextmanager
    def gone(self) -> Iterator[list[Gone]]:
        """Yield the engines that are gone; while the block runs, none of them can come back.

        Take an entry away with `forget` when nothing of its engine is left.
        """
        held: list[int] = []
        try:
            yield [found for path in self._paths() if (found := _gone(path, held))]
        finally:
            for fd in held:
                os.close(fd)

    def forget(self, engine: Gone) -> None:
        """Take the entry away, inside the block of `gone`."""
        (self._entries / engine.engine_id).unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        with suppress(FileNotFoundError):
            return sorted(self._entries.iterdir())
        return []


def _gone(path: Path, held: list[int]) -> Gone | None:
    """Return the engine of an entry if it is gone; keep the lock of such a one."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    if _locks(fd) and _is(fd, path) and (place := os.pread(fd, 1 << 16, 0)):
        state_dir = Path(os.fsdecode(place))
        if not (state_dir / STORE).exists():
            held.append(fd)
            return Gone(path.name, state_dir)
    os.close(fd)
    return None


def _locks(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is(fd: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), path.stat())
    return False
