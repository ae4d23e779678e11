"""What a frame of an agent must hold before anybody else sees it. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from atoll.wire import frames
from atoll.wire.frames import Frame, Kind
from atoll.wire.records import Exit, Gap, Started

MAX_ERROR = 64 << 10
"""Bytes of an agent's error answer that are believed; a longer one is a fault of the agent."""

OUTPUT = frozenset({Kind.STDOUT, Kind.STDERR, Kind.RESULT})
_FROM_AGENT = OUTPUT | {
    Kind.REPLY, Kind.ERROR, Kind.STARTED, Kind.EXITED, Kind.GAP, Kind.HEARTBEAT, Kind.DATA,
    Kind.END, Kind.EVENT,
}  # fmt: skip


_SHAPES: Mapping[int, Any] = {
    Kind.STARTED: Started,
    Kind.EXITED: Exit,
    Kind.GAP: Gap,
    Kind.EVENT: dict[str, Any],
}


def check(frame: Frame) -> None:
    """Refuse a frame that no agent sends.

    Raises:
        FrameError: its kind or size.
        MsgspecError: what it holds.
    """
    if frame.kind not in _FROM_AGENT:
        raise frames.FrameError(f"frame of kind {frame.kind}")
    if frame.kind in OUTPUT:
        frames.check_output(frame.payload)
    elif shape := _SHAPES.get(frame.kind):
        msgspec.json.decode(frame.payload, type=shape)
    elif frame.kind == Kind.ERROR and len(frame.payload) > MAX_ERROR:
        raise frames.FrameError(f"error answer of {len(frame.payload)} bytes")
