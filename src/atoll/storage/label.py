"""What a mounted root says about itself: the "device" of its entry in the mount table. Pure.

So a new engine learns from the kernel which layer and which ids a running sandbox uses.
"""

from typing import NamedTuple

_PREFIX = "atoll"


class RootLabel(NamedTuple):
    """Which layer a root writes to, and the host ids its files are mapped to."""

    layer_id: str
    id_base: int
    id_count: int

    def __str__(self) -> str:
        return f"{_PREFIX}:{self.layer_id}:{self.id_base}:{self.id_count}"


def parse_label(source: str) -> RootLabel | None:
    """Return the label in a mount's source, or None for a mount that is no root of ours."""
    prefix, *fields = source.split(":")
    if prefix != _PREFIX or len(fields) != 3 or not (fields[1] + fields[2]).isdecimal():
        return None
    return RootLabel(fields[0], int(fields[1]), int(fields[2]))
