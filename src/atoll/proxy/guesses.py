"""How often one address may name previews that do not exist.

A default token has 82 bits and cannot be guessed; one that its owner chose may be short. Misses are
counted by address and sandbox: a page that asks for one sandbox in vain does not lock its visitor
out of another, and neighbours behind the same address are not locked out of theirs.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

from atoll.errors import RateLimitedError

MISSES = 20
"""Misses of one address at one sandbox in `WINDOW`: a stale tab that reloads itself is below."""

WINDOW = 60.0
"""Seconds. 20 a minute are 10 million a year, 36^5 is 60 million: five random characters last."""

KNOWN = 10_000
"""Pairs that are counted at once; the oldest give way."""


class Guesses:
    """Counts misses.

    Args:
        clock: seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._misses: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    def check(self, address: str, sandbox_id: str) -> None:
        """Refuse an address that missed too often.

        Raises:
            RateLimitedError: with the seconds to wait.
        """
        if not self._misses:
            return
        since, misses = self._misses.get((_group(address), sandbox_id), (0.0, 0))
        left = since + WINDOW - self._clock()
        if misses >= MISSES and left > 0:
            raise RateLimitedError("too many wrong addresses of previews", retry_after=left)

    def miss(self, address: str, sandbox_id: str) -> None:
        """Count a miss."""
        key, now = (_group(address), sandbox_id), self._clock()
        since, misses = self._misses.pop(key, (now, 0))
        if now - since > WINDOW:
            since, misses = now, 0
        self._misses[key] = since, misses + 1
        if len(self._misses) > KNOWN:
            self._misses.popitem(last=False)


def _group(address: str) -> str:
    """Return the network that one visitor has: the address, or the /64 of IPv6."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64))
    return str(found)
