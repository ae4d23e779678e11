"""What frames of a command hold, as JSON in the agent's own names; see `atoll.wire.agent`."""

import msgspec


class Started(msgspec.Struct):
    """Payload of STARTED."""

    pid: int = 0
    seq: int = 0
    offset: int = 0


class Gap(msgspec.Struct):
    """Payload of GAP: bytes of output that are lost."""

    from_offset: int
    to_offset: int
    reason: str = "lost"
    seq: int = 0
    offset: int = 0


class Exit(msgspec.Struct):
    """Payload of EXITED; see `atoll.wire.agent.ExitRecord`."""

    exit_code: int
    signal: str | None = None
    timed_out: bool = False
    cancelled: bool = False
    reason: str | None = None
    oom_killed: bool = False
    pids_limited: bool = False
    session_ended: bool = False
    state_saved: bool = True
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    truncated: bool = False
    duration: float = 0.0
    seq: int = 0
    offset: int = 0
