"""User namespaces that map files to a sandbox's ids, and the ranges of ids of this host.

A range is claimed for the whole host by a symbolic link whose name is the range and whose target
is its owner: made atomically, seen by every engine, gone with a reboot like the sandboxes.
"""

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from atoll.errors import ContainerUnavailableError
from atoll.host import linux

CLAIMS = Path("/run/atoll/ids")
"""Where engines claim ranges: one place a host, whatever their state directories."""

IDS_END = 1 << 31
"""Ids from here on are negative numbers to some programs."""


def id_map(id_base: int, id_count: int) -> str:
    """Return the map of an idmapped mount: ids on disk from 0 → the sandbox's range. Pure.

    The second line is for overlay itself, which works on its layers as the host's root: without
    an id for it on disk the mount is silently read-only. A range from 0 has one.
    """
    if not id_base:
        return f"0 0 {id_count}\n"
    return f"0 {id_base} {id_count}\n{id_count} 0 1\n"


class Mappings:
    """User namespaces of ranges, kept: the lowest ranges are used over and over.

    Making one forks the engine (1 ms, more as the engine grows), using one again costs nothing.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()

    def get(self, id_base: int, id_count: int) -> int:
        """Return a descriptor for `mount_setattr`; it stays open until `close`."""
        with self._lock:
            key = (id_base, id_count)
            if key not in self._kept:
                text = id_map(id_base, id_count)
                self._kept[key] = linux.user_namespace(text, text)
            return self._kept[key]

    def close(self) -> None:
        """Close all of them; mounts that use them stay."""
        with self._lock:
            while self._kept:
                os.close(self._kept.popitem()[1])


class IdRanges:
    """Claims ranges of host ids for the sandboxes of one engine.

    Args:
        base: first id of the first range.
        count: ids of one range.
        engine_id: owner of the claims.
    """

    def __init__(self, base: int, count: int, engine_id: str, claims: Path = CLAIMS) -> None:
        self.base = base
        self.count = count
        self._engine_id = engine_id
        self._claims = claims

    def acquire(self, host_ref: str) -> int:
        """Return the first id of the range of *host_ref*; claim the lowest free one if it has none.

        Raises:
            ContainerUnavailableError: all ranges are taken (reason "capacity").
        """
        taken = self._read()
        for start, owner in taken.items():
            if owner == self._owner(host_ref):
                return start
        for start in range(self.base, IDS_END - self.count, self.count):
            if start not in taken and self._claim(start, host_ref):
                return start
        raise ContainerUnavailableError(
            "no host ids are left for another sandbox", context={"reason": "capacity"}
        )

    def adopt(self, host_ref: str, start: int) -> None:
        """Claim the range of a sandbox that an earlier engine started; 0 is no range."""
        if not start:
            return
        self._claims.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._claim(start, host_ref)

    def release(self, host_ref: str) -> None:
        """Give the range back."""
        self._remove({self._owner(host_ref)})

    def keep_only(self, host_refs: Iterable[str]) -> None:
        """Give back every range of this engine but those of *host_refs*."""
        kept = {self._owner(ref) for ref in host_refs}
        own = {o for o in self._read().values() if o.startswith(f"{self._engine_id}/")}
        self._remove(own - kept)

    def _owner(self, host_ref: str) -> str:
        return f"{self._engine_id}/{host_ref}"

    def _claim(self, start: int, host_ref: str) -> bool:
        try:
            (self._claims / str(start)).symlink_to(self._owner(host_ref))
        except FileExistsError:
            return False
        return True

    def _read(self) -> dict[int, str]:
        self._claims.mkdir(mode=0o755, parents=True, exist_ok=True)
        taken: dict[int, str] = {}
        for claim in self._claims.iterdir():
            with suppress(FileNotFoundError, ValueError):
                taken[int(claim.name)] = str(claim.readlink())
        return taken

    def _remove(self, owners: Iterable[str]) -> None:
        gone = set(owners)
        for start, owner in self._read().items():
            if owner in gone:
                (self._claims / str(start)).unlink(missing_ok=True)
