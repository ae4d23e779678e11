"""Memory that bodies may take, where many are held at the same time. Pure."""

from collections.abc import Iterator
from contextlib import contextmanager

from atoll.errors import RateLimitedError


class Budget:
    """Bytes that may be held together.

    Args:
        limit: most bytes at once.
        within: a larger budget that they are taken from, too.
    """

    def __init__(self, limit: int, within: "Budget | None" = None) -> None:
        self._limit = limit
        self._within = within
        self.taken = 0

    @contextmanager
    def share(self) -> Iterator["Share"]:
        """Yield the share of one request; it is given back at the end."""
        share = Share(self)
        try:
            yield share
        finally:
            self.give_back(share.size)

    def take(self, size: int) -> None:
        """Take *size* bytes; raise `RateLimitedError` when there are none left."""
        if self.taken + size > self._limit:
            raise RateLimitedError(
                "the bodies under way are too large together", retry_after=1.0,
                context={"limit": self._limit, "of": "bodies"},
            )  # fmt: skip
        if self._within:
            self._within.take(size)
        self.taken += size

    def give_back(self, size: int) -> None:
        """Hold *size* bytes less."""
        self.taken -= size
        if self._within:
            self._within.give_back(size)


class Share:
    """What one request holds of a `Budget`."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.size = 0

    def take(self, size: int) -> None:
        """Take *size* more bytes; raise as `Budget.take`."""
        self._budget.take(size)
        self.size += size

    def hold(self, size: int) -> None:
        """Hold *size* bytes from now on, more or fewer than before; raise as `Budget.take`."""
        self.take(size - self.size)
