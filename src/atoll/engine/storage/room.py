"""How much of the disk everything takes together that the engine writes for callers.

Standard input and build contexts lie beside the sandboxes' layers until they are used. A limit of
each call alone would let many calls fill the disk, so they have one limit together, and none of
them takes what `storage.reserve_mb` leaves free.
"""

import os
from pathlib import Path

from atoll.errors import NoSpaceError
from atoll.settings import MB, Settings


class Room:
    """What all callers share.

    Args:
        directory: on the disk in question.
        limit: most bytes at once.
        reserve: bytes of the disk that stay free.
    """

    def __init__(self, directory: Path, limit: int, reserve: int) -> None:
        self._directory = directory
        self._limit = limit
        self._reserve = reserve
        self.taken = 0

    @classmethod
    def of(cls, settings: Settings) -> "Room":
        """Return the room that *settings* give."""
        storage = settings.storage
        return cls(storage.state_dir, settings.server.max_spooled, storage.reserve_mb * MB)

    def share(self) -> "Share":
        """Return the share of one call, still empty."""
        return Share(self)

    def take(self, size: int) -> None:
        """See `Share.take`."""
        if self.taken + size > self._limit:
            raise NoSpaceError(
                "the input of all callers together is over its limit",
                context={"limit": self._limit, "taken": self.taken},
                suggestion="try again when other calls have ended, or raise server.max_spooled",
            )
        disk = os.statvfs(self._directory)
        free = disk.f_bavail * disk.f_frsize
        if free - size < self._reserve:
            raise NoSpaceError(
                "the engine's disk is full",
                context={"free": free, "reserve": self._reserve},
                suggestion="free space on the disk of the state directory",
            )
        self.taken += size

    def give(self, size: int) -> None:
        """Take back what a share had."""
        self.taken -= size


class Share:
    """What one call has of a `Room`."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._size = 0

    def take(self, size: int) -> None:
        """Count *size* bytes that are about to be written.

        Raises:
            NoSpaceError: they do not fit.
        """
        self._room.take(size)
        self._size += size

    def release(self) -> None:
        """Give all of it back: the files are gone. Idempotent."""
        self._room.give(self._size)
        self._size = 0
