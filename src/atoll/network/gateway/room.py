"""How many bytes are held in memory at the same time, of one sandbox and of all. Pure."""

from types import TracebackType
from typing import Self


class Full(Exception):  # noqa: N818  # a state
    """There is no room for more now."""


class Room:
    """Bytes that may be held.

    Args:
        limit: how many.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0

    def has(self, size: int) -> bool:
        """Tell whether *size* bytes more fit in."""
        return self.held + size <= self._limit


class Holding:
    """Takes room in several places until it is left (a context manager)."""

    def __init__(self, *rooms: Room) -> None:
        self._rooms = rooms
        self._size = 0

    def add(self, size: int) -> None:
        """Take room for *size* bytes more.

        Raises:
            Full: a place has none.
        """
        if not all(room.has(size) for room in self._rooms):
            raise Full
        self._size += size
        for room in self._rooms:
            room.held += size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        for room in self._rooms:
            room.held -= self._size
        self._size = 0
