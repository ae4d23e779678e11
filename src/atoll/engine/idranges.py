"""Host id ranges of running sandboxes: each has its own, taken only while it runs. Pure.

Files on disk hold the image's own ids (the mount maps them), so a sandbox may get another range at
every start.
"""

from atoll.errors import ContainerUnavailableError

HOST_IDS_END = 1 << 32
"""Host uids end here (the last one means "none")."""


class IdRanges:
    """Hands out the lowest free range.

    Args:
        base: first host id of the first range.
        count: ids of one range.
    """

    def __init__(self, base: int, count: int) -> None:
        self.base = base
        self.count = count
        self._taken: dict[str, int] = {}

    def acquire(self, host_ref: str) -> int:
        """Return the first id of the range of *host_ref*; take one if it has none.

        Raises:
            ContainerUnavailableError: all ids are in use.
        """
        if host_ref in self._taken:
            return self._taken[host_ref]
        used, start = set(self._taken.values()), self.base
        while start in used:
            start += self.count
        if start + self.count >= HOST_IDS_END:
            raise ContainerUnavailableError(
                "no host ids are left for another sandbox", context={"reason": "capacity"}
            )
        self._taken[host_ref] = start
        return start

    def adopt(self, host_ref: str, start: int) -> None:
        """Note the range of a sandbox that an earlier engine started."""
        self._taken[host_ref] = start

    def release(self, host_ref: str) -> None:
        """Give the range back."""
        self._taken.pop(host_ref, None)
