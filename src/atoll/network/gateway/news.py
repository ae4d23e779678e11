"""What is new among things that repeat, at a bounded rate. Pure; the caller brings the time."""

from collections import OrderedDict
from collections.abc import Hashable

from atoll.network.gateway.bucket import Bucket

KEPT = 64
"""Things that are remembered; one that comes again later is new again."""

BURST, RATE = 10, 1 / 600
"""News at once, and a second on average: a sandbox that makes up names is not worth more."""


class News:
    """Tells things apart that were there before."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, None] = OrderedDict()
        self._bucket = Bucket(RATE, BURST)

    def has(self, thing: Hashable, now: float) -> bool:
        """Tell whether *thing* is new, and may be told; *now* in seconds, never less than before."""
        if thing in self._known:
            self._known.move_to_end(thing)
            return False
        if not self._bucket.take(now):
            return False
        self._known[thing] = None
        if len(self._known) > KEPT:
            self._known.popitem(last=False)
        return True
