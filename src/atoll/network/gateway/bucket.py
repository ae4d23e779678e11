"""How often something may happen: on average, and at once. Pure; the caller brings the time."""


class Bucket:
    """A token bucket.

    Args:
        rate: tokens that come each second.
        burst: tokens that it holds, and has at first.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = 0.0

    def take(self, now: float) -> bool:
        """Take a token, if there is one; *now* in seconds, never less than before."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
