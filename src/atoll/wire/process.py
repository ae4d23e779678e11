"""Commands, processes and sessions on the wire."""

import base64
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from atoll.wire.base import Millis, Request, Result, Whole

DEFAULT_TIMEOUT_MS = 120_000
"""Default time limit of a command (semantics.md "Commands" 7)."""


def as_text(data: bytes, encoding: str) -> str:
    """Return *data* as text: decoded with replacement, or as base64 when *encoding* says so."""
    if encoding == "base64":
        return base64.b64encode(data).decode()
    return data.decode(encoding, "replace")


class ExecRequest(Request, frozen=True, kw_only=True):
    """HEADER of an exec request body; STDIN frames may follow when `stdin` is true."""

    command: str | list[str]
    timeout_ms: Millis | None = msgspec.field(default=DEFAULT_TIMEOUT_MS, name="timeout")
    env: dict[str, str | None] = msgspec.field(default_factory=dict)
    cwd: str | None = None
    user: str | None = None
    session: str | None = None  # None: the default session, if it is enabled
    stdin: bool = False  # STDIN frames follow in this body
    open_stdin: bool = False  # stdin stays open; fed by POST …/operations/{op}/stdin
    buffered: bool = False  # cut each stream at the output limit
    pty: bool = False
    cols: Whole = 80
    rows: Whole = 24
    shell_state: bool = True  # False: a fresh process (spawn, argv lists)
    turn: bool = True  # False: beside the commands of its session, not after them (spawn)
    from_offset: Whole = 0  # attach to the operation of this idempotency key from here


class ExecResult(Result, frozen=True, kw_only=True):
    """How a command ended, with its output.

    `stdout` and `stderr` are a lossy view (invalid UTF-8 is replaced); `stdout_bytes` and
    `stderr_bytes` are exact. `exit_code` is 128 + n when signal n ended the command, and `signal`
    names it then; nothing here is ever guessed.
    """

    exit_code: int
    signal: str | None = None
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""
    command: str | list[str] = ""
    duration_ms: int = msgspec.field(default=0, name="duration")
    timestamp: datetime
    session_id: str | None = None
    truncated: bool = False
    timed_out: bool = False
    oom_killed: bool = False
    pids_limited: bool = False  # forks failed for the limit of processes while it ran
    state_saved: bool = True
    stdout_total: int = 0
    stderr_total: int = 0
    encoding: str = "utf-8"
    snapshot_id: str | None = None  # of what was there before, when that was asked for

    @property
    def success(self) -> bool:
        """Whether the command exited with 0."""
        return self.exit_code == 0

    @property
    def stdout(self) -> str:
        """Standard output as text; bytes that do not decode are replaced."""
        return as_text(self.stdout_bytes, self.encoding)

    @property
    def stderr(self) -> str:
        """Standard error as text; bytes that do not decode are replaced."""
        return as_text(self.stderr_bytes, self.encoding)

    @property
    def duration(self) -> float:
        """Run time in seconds, measured inside the sandbox."""
        return self.duration_ms / 1000

    def to_dict(self) -> dict[str, Any]:
        """Return the wire form; ``stdoutBase64`` is there only when stdout is not valid UTF-8."""
        wire: dict[str, Any] = {
            "success": self.success,
            "exitCode": self.exit_code,
            "signal": self.signal,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "command": self.command,
            "duration": self.duration_ms,
            "timestamp": self.timestamp.isoformat().replace("+00:00", "Z"),
            "sessionId": self.session_id,
            "truncated": self.truncated,
            "timedOut": self.timed_out,
            "oomKilled": self.oom_killed,
            "pidsLimited": self.pids_limited,
            "stateSaved": self.state_saved,
            "stdoutTotal": self.stdout_total,
            "stderrTotal": self.stderr_total,
        }
        if self.snapshot_id:
            wire["snapshotId"] = self.snapshot_id
        return wire | _exact(stdout=self.stdout_bytes, stderr=self.stderr_bytes)


def _exact(**streams: bytes) -> dict[str, str]:
    """Return ``nameBase64`` for every stream that is not valid UTF-8."""
    found = {}
    for name, data in streams.items():
        try:
            data.decode()
        except UnicodeDecodeError:
            found[f"{name}Base64"] = base64.b64encode(data).decode()
    return found


class Started(Result, frozen=True, kw_only=True, tag="started"):
    """The command runs; `pid` is its process id as its session sees it."""

    pid: int
    seq: int = 0
    offset: int = 0


class Stdout(Result, frozen=True, kw_only=True, tag="stdout"):
    """A piece of standard output, exactly as it was written."""

    data: bytes
    text: str = ""  # incremental decoding: a character is never cut between two events
    seq: int = 0
    offset: int = 0


class Stderr(Result, frozen=True, kw_only=True, tag="stderr"):
    """A piece of standard error, exactly as it was written."""

    data: bytes
    text: str = ""
    seq: int = 0
    offset: int = 0


class Exited(Result, frozen=True, kw_only=True, tag="exited"):
    """The command ended; every byte of its output came before this event."""

    exit_code: int
    signal: str | None = None
    timed_out: bool = False
    cancelled: bool = False
    reason: str | None = None
    oom_killed: bool = False
    pids_limited: bool = False
    session_ended: bool = False
    state_saved: bool = True
    truncated: bool = False
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    duration: float = 0.0
    seq: int = 0
    offset: int = 0


class Failed(Result, frozen=True, kw_only=True, tag="failed"):
    """The command could not be run, or its outcome is not known; `error` is the envelope."""

    error: dict[str, Any]
    seq: int = 0
    offset: int = 0


class Gap(Result, frozen=True, kw_only=True, tag="gap"):
    """Output that is no longer kept, or could not be kept (no space): never silence."""

    from_offset: int
    to_offset: int
    reason: str
    seq: int = 0
    offset: int = 0


ExecEvent = Started | Stdout | Stderr | Gap | Exited | Failed


class SignalRequest(Request, frozen=True, kw_only=True):
    """Send a signal to an operation; with `tree` to every process it started."""

    signal: str = "SIGTERM"
    tree: bool = False


Cells = Annotated[int, msgspec.Meta(ge=1, le=0xFFFF)]
"""Columns or rows: what the kernel keeps of a terminal's size."""


class ResizeRequest(Request, frozen=True, kw_only=True):
    """New size of an operation's terminal, in characters."""

    cols: Cells
    rows: Cells


class ProcessStatus(StrEnum):
    """Statuses of a background process, as 0.12 clients know them."""

    STARTING = "starting"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    KILLED = "killed"
    ERROR = "error"


class StartProcessRequest(Request, frozen=True, kw_only=True):
    """Start a background process."""

    command: str | list[str]
    process_id: str | None = None
    timeout_ms: Millis | None = msgspec.field(default=None, name="timeout")
    env: dict[str, str | None] = msgspec.field(default_factory=dict)
    cwd: str | None = None
    user: str | None = None
    session: str | None = None
    auto_cleanup: bool = True
    restart: bool = False
    keep_awake: bool = False


FINISHED = frozenset(
    {ProcessStatus.COMPLETED, ProcessStatus.FAILED, ProcessStatus.KILLED, ProcessStatus.ERROR}
)
"""Statuses that are never left again."""


class ProcessInfo(Result, frozen=True, kw_only=True):
    """A background process.

    `exit_code` and `signal` come from wait status; both are None where the outcome is not known.
    `reason` tells what ended it when that was not the process itself: kill, timeout, sleep,
    session, oom, or why the outcome is not known.
    """

    id: str
    handle: str = ""  # of this one start: the id may name another process later
    pid: int | None
    command: str | list[str]
    status: ProcessStatus
    start_time: datetime
    end_time: datetime | None = None
    exit_code: int | None = None
    signal: str | None = None
    reason: str | None = None
    session_id: str | None = None
    generation: int = 0


class ProcessList(Result, frozen=True, kw_only=True):
    """All background processes of a sandbox."""

    processes: list[ProcessInfo]


class ProcessQuery(Request, frozen=True, kw_only=True):
    """Which process of an id is meant, and how long to wait for its end."""

    handle: str | None = None  # None: the one the id names now
    wait_ms: Millis = msgspec.field(default=0, name="wait")


class KillProcess(Request, frozen=True, kw_only=True):
    """End the whole tree: the signal, 5 s, KILL."""

    signal: str = "SIGTERM"
    handle: str | None = None


class KillAll(Request, frozen=True, kw_only=True):
    """End all processes of the sandbox."""

    signal: str = "SIGTERM"


class LogsQuery(Request, frozen=True, kw_only=True):
    """Which part of a log. Without `follow` the stream ends with what there is now.

    A stream that ends before the process has END as its last frame; `limit` is the time after
    which it does.
    """

    from_offset: Whole = 0
    follow: bool = True
    limit_ms: Millis | None = msgspec.field(default=None, name="limit")
    handle: str | None = None


class LogsRequest(Request, frozen=True, kw_only=True):
    """Whose log."""

    handle: str | None = None


class ProcessLogs(Result, frozen=True, kw_only=True):
    """The output of a process that is still kept; `truncated` when there was more."""

    process_id: str
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""
    truncated: bool = False

    @property
    def stdout(self) -> str:
        """Standard output as text; bytes that do not decode are replaced."""
        return as_text(self.stdout_bytes, "utf-8")

    @property
    def stderr(self) -> str:
        """Standard error as text; bytes that do not decode are replaced."""
        return as_text(self.stderr_bytes, "utf-8")

    def to_dict(self) -> dict[str, Any]:
        """Return the wire form, with ``…Base64`` beside text that is lossy."""
        wire: dict[str, Any] = {
            "processId": self.process_id,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "truncated": self.truncated,
        }
        return wire | _exact(stdout=self.stdout_bytes, stderr=self.stderr_bytes)


class WaitForPort(Request, frozen=True, kw_only=True):
    """Wait until something answers on a port of 127.0.0.1 or ::1 inside the sandbox."""

    port: Whole
    mode: str = "http"  # or tcp
    path: str = "/"
    status: tuple[Whole, Whole] = (200, 399)  # lowest and highest status of HTTP that will do
    interval_ms: Millis = msgspec.field(default=500, name="interval")
    wait_ms: Millis = msgspec.field(default=0, name="wait")
    handle: str | None = None


class PortAnswer(Result, frozen=True, kw_only=True):
    """Whether the port answered within the time, and with which status."""

    ready: bool
    status: int | None = None


class Count(Result, frozen=True, kw_only=True):
    """How many things a call touched."""

    count: int


class CreateSessionRequest(Request, frozen=True, kw_only=True):
    """A new shell session."""

    id: str | None = None
    name: str | None = None
    env: dict[str, str | None] = msgspec.field(default_factory=dict)
    cwd: str | None = None
    user: str | None = None
    isolation: bool = False
    command_timeout_ms: Millis | None = msgspec.field(default=None, name="commandTimeout")


class SessionInfo(Result, frozen=True, kw_only=True):
    """A shell session."""

    id: str
    name: str | None = None
    cwd: str = "/workspace"
    user: str | None = None
    isolation: bool = False
    created_at: datetime | None = None
    command_timeout_ms: int | None = msgspec.field(default=None, name="commandTimeout")
    life: str | None = None  # of its sandbox; see `ops.LIFE_HEADER`


class SessionList(Result, frozen=True, kw_only=True):
    """All sessions of a sandbox."""

    sessions: list[SessionInfo]


class EnvRequest(Request, frozen=True, kw_only=True):
    """Set (or, with None, unset) environment variables of a sandbox or session."""

    env: dict[str, str | None]
    session: str | None = None
