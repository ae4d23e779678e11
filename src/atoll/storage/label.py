"""What a mounted root says about itself: the "device" of its entry in the mount table. Pure.

So a new engine learns from the kernel which layer and which ids a running sandbox uses.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

_PREFIX = "atoll"


class RootLabel(NamedTuple):
    """Which layer of which store a root writes to, and the host ids its files are mapped to."""

    store: str
    layer_id: str
    id_base: int
    id_count: int

    def __str__(self) -> str:
        return f"{label_prefix(self.store, self.layer_id)}{self.id_base}:{self.id_count}"


def label_prefix(store: str, layer_id: str) -> str:
    """Return what the labels of all roots of this layer begin with."""
    return f"{_PREFIX}:{store}:{layer_id}:"


def parse_label(source: str) -> RootLabel | None:
    """Return the label in a mount's source, or None for a mount that is no root of ours."""
    prefix, *fields = source.split(":")
    if prefix != _PREFIX or len(fields) != 4 or not (fields[2] + fields[3]).isdecimal():
        return None
    return RootLabel(fields[0], fields[1], int(fields[2]), int(fields[3]))


def store_key(state_dir: Path) -> str:
    """Return a short name of the store in *state_dir*, different for every one of the host."""
    return hashlib.sha256(bytes(state_dir.absolute())).hexdigest()[:12]
