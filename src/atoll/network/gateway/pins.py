"""Which addresses a sandbox may use for which names: what our resolver answered it, for a while.

One table a sandbox; none knows of another. Pure: the caller brings the time.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

MAX = 4_096
"""Pins of one sandbox. More than a program looks up in `GRACE`; the oldest give way."""

GRACE = 120.0
"""Seconds a pin outlives the answer's TTL: programs connect later than they ask, and some keep
an answer for a fixed time whatever its TTL."""

MAX_NAMES = 64
"""Names that are told for one address: a policy is asked about each of them."""


class PinTable:
    """The pins of one sandbox."""

    def __init__(self) -> None:
        self._ends: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._names: dict[str, dict[str, None]] = {}  # in the order in which they were asked for

    def add(self, name: str, addresses: Iterable[str], ttl: float, now: float) -> None:
        """Allow *addresses* for *name* until *ttl* and `GRACE` from *now* have passed."""
        for address in addresses:
            pin = (address, name)
            self._ends[pin] = max(self._ends.pop(pin, 0.0), now + ttl + GRACE)
            names = self._names.setdefault(address, {})
            names.pop(name, None)
            names[name] = None
        while len(self._ends) > MAX:
            self._forget(next(iter(self._ends)))

    def names(self, address: str, now: float) -> tuple[str, ...]:
        """Return the names that *address* may be used for; the one that was asked for last comes first.

        That one is most likely what a connection is for which does not say it.
        """
        valid = []
        for name in reversed(list(self._names.get(address, ()))):
            if self._ends[address, name] > now:
                valid.append(name)
            else:
                self._forget((address, name))
        return tuple(valid[:MAX_NAMES])

    def listed(self, now: float) -> Iterator[tuple[str, str, float]]:
        """Yield name, address and the seconds left of each pin."""
        for (address, name), end in self._ends.items():
            if end > now:
                yield name, address, end - now

    def _forget(self, pin: tuple[str, str]) -> None:
        address, name = pin
        del self._ends[pin]
        names = self._names[address]
        del names[name]
        if not names:
            del self._names[address]
