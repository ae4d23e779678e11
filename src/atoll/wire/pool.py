"""The warm pool on the wire."""

import msgspec

from atoll.wire.base import Request, Result, Whole


class Prime(Request, frozen=True, kw_only=True):
    """Fill the pool now. Without fields: up to the targets that are set."""

    image: str | None = None
    instance_type: str | None = None
    target: Whole | None = None  # of this image and instance type, until the engine ends


class WarmKind(Result, frozen=True, kw_only=True):
    """What is kept ready of one image and instance type."""

    image: str
    instance_type: str
    isolation: str
    warm: int
    making: int
    target: int


class PoolStats(Result, frozen=True, kw_only=True):
    """The pool. `warm` containers wait, `assigned` ones run as sandboxes, whatever their start."""

    warm: int
    making: int
    assigned: int
    total: int
    taken: int  # starts served from the pool since the engine began
    missed: int  # starts that found it empty
    max_warm: int
    refresh_interval_ms: int = msgspec.field(name="refreshInterval")
    kinds: list[WarmKind]
