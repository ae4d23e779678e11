"""What a frame of an agent must hold before anybody else sees it. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from atoll.wire import frames
from atoll.wire.frames import Frame, Kind

MAX_ERROR = 64 << 10
"""Bytes of an agent's error answer that are believed; a longer one is a fault of the agent."""

OUTPUT = frozenset({Kind.STDOUT, Kind.STDERR, Kind.RESULT})
_FROM_AGENT = OUTPUT | {
    Kind.REPLY, Kind.ERROR, Kind.STARTED, Kind.EXITED, Kind.GAP, Kind.HEARTBEAT, Kind.DATA,
    Kind.END, Kind.EVENT,
}  # fmt: skip


class Started(msgspec.Struct):
    """What a STARTED frame must hold."""

    pid: int = 0


class Exit(msgspec.Struct):
    """What an EXITED frame must hold; see `atoll.wire.agent.ExitRecord`."""

    exit_code: int
    signal: str | None = None
    timed_out: bool = False
    cancelled: bool = False
    reason: str | None = None
    oom_killed: bool = False
    session_ended: bool = False
    state_saved: bool = True
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    truncated: bool = False
    duration: float = 0.0
    seq: int = 0
    offset: int = 0


class Gap(msgspec.Struct):
    """What a GAP frame must hold."""

    from_offset: int
    to_offset: int
    reason: str = ""


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
