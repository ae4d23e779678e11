"""How much one key may ask for: requests a second, requests at once. Pure but for the clock.

Each key has a bucket that fills at its rate and holds two seconds of it, and a count of what is
under way. The owner of the engine (unix socket, this machine's programs without keys) has no
limits: nobody is there to be protected from it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from atoll.errors import RateLimitedError
from atoll.server.auth import OWNER, Caller
from atoll.settings import ServerSettings

BURST = 2.0
"""Seconds of its rate that a key may use at once."""

KEEP = 1_000
"""Buckets kept; full ones are forgotten beyond that."""


class _Bucket:
    def __init__(self, size: float, now: float) -> None:
        self.size = size
        self.left = size
        self.at = now
        self.under_way = 0

    def fill(self, rate: float, now: float) -> None:
        self.left = min(self.size, self.left + (now - self.at) * rate)
        self.at = now


class Limits:
    """What all listeners of one engine count together.

    Args:
        settings: the limits of keys that have none of their own.
        clock: monotonic seconds.
    """

    def __init__(
        self, settings: ServerSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    @contextmanager
    def entered(self, caller: Caller) -> Iterator[None]:
        """Count one request of *caller* while it is under way.

        Raises:
            RateLimitedError: one too many; `retry_after` says when there is room again.
        """
        if caller.id == OWNER:
            yield
            return
        bucket = self._admit(caller)
        bucket.under_way += 1
        try:
            yield
        finally:
            bucket.under_way -= 1

    def _admit(self, caller: Caller) -> _Bucket:
        now = self._clock()
        rate = caller.rate or self._settings.key_rate
        places = caller.concurrency or self._settings.key_concurrency
        bucket = self._buckets.get(caller.id)
        if bucket is None:
            self._forget(now)
            bucket = self._buckets[caller.id] = _Bucket(max(1.0, rate * BURST), now)
        bucket.fill(rate, now)
        if bucket.under_way >= places:
            raise RateLimitedError(
                f"the key has {places} requests under way", retry_after=1.0,
                context={"limit": places, "of": "concurrency"},
            )  # fmt: skip
        if bucket.left < 1:
            raise RateLimitedError(
                f"the key may send {rate:g} requests a second",
                context={"limit": rate, "of": "rate"},
                retry_after=(1 - bucket.left) / rate,
            )
        bucket.left -= 1
        return bucket

    def _forget(self, now: float) -> None:
        if len(self._buckets) < KEEP:
            return
        idle = [id for id, bucket in self._buckets.items()
                if not bucket.under_way and now - bucket.at > BURST]  # fmt: skip
        for id in idle:
            del self._buckets[id]
