"""What is kept of a background process, and the pure rules over it: statuses, views, who goes."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from atoll.errors import IdempotencyConflictError, ProcessAlreadyExistsError, StaleHandleError
from atoll.wire.agent import ExecHeader
from atoll.wire.process import FINISHED, ProcessInfo, ProcessStatus, StartProcessRequest
from atoll.wire.records import Exit

Status = ProcessStatus

UNKNOWN = "its outcome is not known"
GONE = "its sandbox ended"
DESTROYED = "its sandbox was destroyed"
SLEEP = "sleep"
_REASONS = {"shutdown": SLEEP, "agent": GONE}
"""What the agent says of a process it ended → what callers are told."""

_RESTARTED = frozenset({SLEEP, GONE})


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One start of a process. `uid` is its handle and the agent's operation id."""

    uid: str
    namespace: str
    sandbox: str
    layer_id: str  # of the sandbox's life: where the log is
    generation: int
    id: str
    request: StartProcessRequest
    status: ProcessStatus
    start_time: datetime
    key: str | None = None  # idempotency key of the call that started it
    pid: int | None = None
    end_time: datetime | None = None
    exit_code: int | None = None
    signal: str | None = None
    reason: str | None = None
    size: int | None = None  # bytes of output at its end

    @property
    def live(self) -> bool:
        """Whether its end is not known."""
        return self.status not in FINISHED

    @property
    def owner(self) -> tuple[str, str]:
        """Namespace and id of the sandbox."""
        return self.namespace, self.sandbox

    def info(self) -> ProcessInfo:
        """Return what callers are told."""
        return ProcessInfo(
            id=self.id,
            handle=self.uid,
            pid=self.pid,
            command=self.request.command,
            status=self.status,
            start_time=self.start_time,
            end_time=self.end_time,
            exit_code=self.exit_code,
            signal=self.signal,
            reason=self.reason,
            session_id=self.request.session,
            generation=self.generation,
        )


def header(record: ProcessRecord, log_limit: int | None) -> ExecHeader:
    """Return what the agent is asked for.

    Args:
        record: of the process.
        log_limit: bytes of the log it is handed; None: it sends the output here instead.
    """
    request = record.request
    asked = ExecHeader(
        op="exec",
        id=record.uid,
        command=request.command,
        session=request.session,
        env=request.env,
        cwd=request.cwd,
        user=request.user,
        timeout=None if request.timeout_ms is None else request.timeout_ms / 1000,
        detach=True,
        quiet=log_limit is not None,
    )
    if log_limit is not None:
        asked["log_limit"] = log_limit
    return asked


def ended(record: ProcessRecord, exit: Exit, at: datetime) -> ProcessRecord:
    """Return *record* after it ended with *exit*."""
    if exit.timed_out or exit.cancelled:
        status = Status.KILLED
        reason = _REASONS.get(exit.reason or "", exit.reason)
    else:
        status = Status.COMPLETED if exit.exit_code == 0 else Status.FAILED
        reason = "oom" if exit.oom_killed else None
        if exit.pids_limited and exit.exit_code and not reason:
            reason = "pids"
    return msgspec.structs.replace(
        record,
        status=status,
        reason=reason,
        exit_code=exit.exit_code,
        signal=exit.signal,
        end_time=at,
        size=exit.offset,
    )


def lost(record: ProcessRecord, status: Status, reason: str, at: datetime) -> ProcessRecord:
    """Return *record* after an end without an exit code: none is ever invented."""
    return msgspec.structs.replace(record, status=status, reason=reason, end_time=at)


def restarts(record: ProcessRecord) -> bool:
    """Whether a wake starts it again: only what the end of its sandbox has ended."""
    return record.request.restart and record.status is Status.KILLED and record.reason in _RESTARTED


def check_free(old: ProcessRecord | None) -> None:
    """Refuse an id whose process runs.

    Raises:
        ProcessAlreadyExistsError: it does.
    """
    if old and old.live:
        raise ProcessAlreadyExistsError(
            f"process {old.id!r} is {old.status}",
            context={"process": old.id, "pid": old.pid},
            suggestion="kill it first, or choose another id",
        )


def check_handle(record: ProcessRecord, handle: str | None) -> ProcessRecord:
    """Return *record* when *handle* is its own.

    Raises:
        StaleHandleError: the id names a later process now.
    """
    if handle in {None, record.uid}:
        return record
    raise StaleHandleError(
        f"process {record.id!r} was started again since",
        context={"process": record.id, "generation": record.generation},
        suggestion="get_process returns the one that has the id now",
    )


def check_repeated(record: ProcessRecord, request: StartProcessRequest) -> ProcessRecord:
    """Return what the first call with a key started, when *request* is that call again.

    Raises:
        IdempotencyConflictError: it is another one.
    """
    if msgspec.structs.replace(record.request, process_id=None) == msgspec.structs.replace(
        request, process_id=None
    ) and request.process_id in {None, record.id}:
        return record
    raise IdempotencyConflictError(
        "the idempotency key was used for another process", context={"process": record.id}
    )


def rest_of(record: ProcessRecord, age: float, at: datetime) -> float:
    """Return the seconds until the process is *age* seconds old; 0 if it is older."""
    return max(0.0, min(age, age - (at - record.start_time).total_seconds()))


def age(record: ProcessRecord) -> tuple[bool, datetime]:
    """Order of logs that give way: finished ones first, then the oldest."""
    return record.live, record.end_time or record.start_time


def overdue(
    records: Iterable[ProcessRecord], at: datetime, *, keep: float, count: int
) -> list[ProcessRecord]:
    """Return the finished processes with `auto_cleanup` that are not kept any longer.

    Args:
        records: of one sandbox.
        at: the time now.
        keep: seconds they are kept.
        count: how many are kept.
    """
    finished = [r for r in records if r.end_time and r.request.auto_cleanup]
    finished.sort(key=lambda r: r.end_time or at, reverse=True)
    oldest = at - timedelta(seconds=keep)
    return [
        r for n, r in enumerate(finished) if n >= count or (r.end_time and r.end_time <= oldest)
    ]
