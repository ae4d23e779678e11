"""A background process of a sandbox: looked at, waited for, ended."""

import re
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from typing import Any, Literal

from atoll.errors import (
    OperationInterruptedError,
    ProcessError,
    ProcessExitedBeforeReadyError,
    SandboxError,
)
from atoll.sdk import _io, _arguments, _logs, _shared
from atoll.sdk._sync.logs import LogStream
from atoll.sdk._sync.target import Address, ResultT
from atoll.sdk._logs import LogMatch
from atoll.wire import ops
from atoll.wire.base import Duration, Request
from atoll.wire.process import (
    FINISHED,
    Exited,
    Failed,
    KillProcess,
    LogsQuery,
    ProcessInfo,
    ProcessLogs,
    ProcessQuery,
    ProcessStatus,
    Stderr,
    Stdout,
    WaitForPort,
)

POLL_SECONDS = 30.0
"""Longest wait of one request; the engine waits at most 60 s."""

Statuses = int | range | tuple[int, int]


class Process:
    """A background process. Its attributes are as they were when the engine was asked last.

    It stays the handle of this one start: when its id is used again, calls raise
    `StaleHandleError`.
    """

    def __init__(self, address: Address, info: ProcessInfo) -> None:
        self._address = address
        self.info = info

    @property
    def id(self) -> str:
        """The process's id, unique in its sandbox while it runs."""
        return self.info.id

    @property
    def pid(self) -> int | None:
        """As its session sees it, see `ProcessHandle`; None when it was never started."""
        return self.info.pid

    @property
    def command(self) -> str | list[str]:
        """What it runs."""
        return self.info.command

    @property
    def status(self) -> ProcessStatus:
        """starting, running, completed, failed, killed or error."""
        return self.info.status

    @property
    def start_time(self) -> datetime:
        """When it was started."""
        return self.info.start_time

    @property
    def end_time(self) -> datetime | None:
        """When it ended."""
        return self.info.end_time

    @property
    def exit_code(self) -> int | None:
        """Its exit code (128 + n for signal n); None while it runs, or when it is not known."""
        return self.info.exit_code

    @property
    def signal(self) -> str | None:
        """Name of the signal that ended it."""
        return self.info.signal

    @property
    def reason(self) -> str | None:
        """What ended it if not itself: kill, timeout, sleep, session, oom; or why that is unknown."""
        return self.info.reason

    @property
    def session_id(self) -> str | None:
        """The session it belongs to; None: the sandbox."""
        return self.info.session_id

    def __repr__(self) -> str:
        return f"<Process {self.id} {self.status} of {self._address.namespace}/{self._address.id}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the wire form."""
        return self.info.to_dict()

    def kill(self, signal: str = "SIGTERM") -> None:
        """End it and everything it started: *signal*, 5 s, SIGKILL.

        Nothing happens to one that has ended.

        Raises:
            StaleHandleError: its id names another process now.
        """
        request = KillProcess(signal=signal, handle=self.info.handle)
        self.info = self._call(ops.KILL_PROCESS, request)

    def get_status(self) -> ProcessStatus:
        """Ask the engine, refresh the attributes, and return the status."""
        self.info = self._call(ops.GET_PROCESS, ProcessQuery(handle=self.info.handle))
        return self.info.status

    def get_logs(self) -> ProcessLogs:
        """Return all output that is kept, also after its end and while the sandbox sleeps."""
        return collect(self.stream_logs(follow=False), self.id)

    def stream_logs(self, *, from_offset: int = 0, follow: bool = True) -> LogStream:
        """Return the output from an offset on, with *follow* up to the end of the process."""
        return self._stream(from_offset, follow=follow, limit_ms=None)

    def _stream(self, from_offset: int, *, follow: bool, limit_ms: int | None) -> LogStream:
        query = LogsQuery(
            from_offset=from_offset, follow=follow, limit_ms=limit_ms, handle=self.info.handle
        )
        return LogStream(self._address, self.id, query)

    def wait_for_log(
        self, pattern: str | re.Pattern[str], timeout: Duration | None = None
    ) -> LogMatch:
        """Wait for a line of stdout or stderr, also one that was printed already.

        Args:
            pattern: text that the line contains, or an expression that is searched in it.
            timeout: how long to wait; None: until the process ends.

        Returns:
            ``(line, match)``; `match` is None for a pattern that is text.

        Raises:
            ProcessReadyTimeoutError: the time is over.
            ProcessExitedBeforeReadyError: the process ended without such a line.
        """
        search = _logs.LineSearch(pattern)
        limit = _arguments.milliseconds("timeout", timeout)
        stream = self._stream(0, follow=True, limit_ms=limit)
        ended = False
        with closing(stream.with_pauses()) as events:
            for event in events:
                found = None
                if isinstance(event, Stdout):
                    found = search.feed("stdout", event.text)
                elif isinstance(event, Stderr):
                    found = search.feed("stderr", event.text)
                elif event is None or isinstance(event, Exited | Failed):
                    found, ended = search.pause(), event is not None
                if found:
                    return found
        if ended:
            raise self._exited_early(f"a line matched {pattern!r}")
        raise _logs.not_ready(self.id, f"no line matched {pattern!r}", (limit or 0) / 1000)

    def wait_for_port(
        self,
        port: int,
        *,
        mode: Literal["http", "tcp"] = "http",
        path: str = "/",
        status: Statuses = (200, 399),
        timeout: Duration | None = None,
        interval: Duration = 0.5,
    ) -> None:
        """Wait until something answers on a port of 127.0.0.1 or ::1 in the sandbox.

        Args:
            port: 1 to 65535.
            mode: "http": a GET of *path* is answered with *status*; "tcp": it takes connections.
            path: of the request.
            status: one status, a range, or the lowest and the highest that will do.
            timeout: how long to wait; None: until the process ends.
            interval: between two tries.

        Raises:
            ProcessReadyTimeoutError: the time is over.
            ProcessExitedBeforeReadyError: the process ended; with its code and last output.
        """
        request = WaitForPort(
            port=port,
            mode=mode,
            path=path,
            status=_logs.status_range(status),
            interval_ms=_arguments.milliseconds("interval", interval) or 0,
            handle=self.info.handle,
        )
        limit = _arguments.milliseconds("timeout", timeout)
        waits = _logs.Waits(limit, _io.now(), POLL_SECONDS)
        while (wait_ms := waits.next(_io.now())) is not None:
            try:
                asked = _logs.with_wait(request, wait_ms)
                if (self._call(ops.WAIT_FOR_PORT, asked)).ready:
                    return
            except ProcessExitedBeforeReadyError as error:
                raise self._exited_early(f"port {port} answered") from error
        raise _logs.not_ready(self.id, f"port {port} did not answer", (limit or 0) / 1000)

    def wait_for_exit(self, timeout: Duration | None = None) -> int:
        """Wait for its end and return the exit code.

        Raises:
            ProcessReadyTimeoutError: the time is over.
            ProcessError: it ended, and its exit code is not known.
        """
        limit = _arguments.milliseconds("timeout", timeout)
        waits = _logs.Waits(limit, _io.now(), POLL_SECONDS)
        while (wait_ms := waits.next(_io.now())) is not None:
            query = ProcessQuery(handle=self.info.handle, wait_ms=wait_ms)
            self.info = self._call(ops.GET_PROCESS, query)
            if self.info.exit_code is not None:
                return self.info.exit_code
            if self.info.status in FINISHED:
                raise ProcessError(
                    f"process {self.id!r} has no exit code: {self.info.reason}",
                    context={"process": self.id, "status": self.info.status},
                )
        raise _logs.not_ready(self.id, "it did not end", (limit or 0) / 1000)

    def _exited_early(self, what: str) -> ProcessExitedBeforeReadyError:
        self.get_status()
        return _logs.exited_early(self.info, self.get_logs(), what)

    def _call(self, op: ops.Op[Any, ResultT], request: Request) -> ResultT:
        return call(self._address, op, request, process=self.id)

    def follow(
        self,
        on_output: Callable[[Literal["stdout", "stderr"], str], object] | None,
        on_exit: Callable[[int | None], object] | None,
        on_error: Callable[[SandboxError], object] | None,
    ) -> None:
        """Call back with the output and the end, in the background."""
        _arguments.callbacks(on_output=on_output, on_exit=on_exit, on_error=on_error)
        _io.background(lambda: self._follow(on_output, on_exit, on_error))

    def _follow(self, on_output: Any, on_exit: Any, on_error: Any) -> None:
        try:
            with self.stream_logs() as events:
                for event in events:
                    if isinstance(event, Stdout | Stderr) and event.text:
                        name = "stdout" if isinstance(event, Stdout) else "stderr"
                        _io.call(on_output, name, event.text)
            self.get_status()
            _io.call(on_exit, self.exit_code)
        except SandboxError as error:
            _io.call(on_error, error)


def call(address: Address, op: ops.Op[Any, ResultT], request: Request, **more: str) -> ResultT:
    """Make a call that may be sent twice: one that reads, or one that the engine does once."""
    key = _shared.new_operation_id()
    address.ensure()
    until = _io.now() + _shared.RECONNECT_SECONDS
    while True:
        try:
            return address.transport.call(
                op, address.params | more, request, key=key, ready=address.ready
            )
        except OperationInterruptedError as error:
            # The engine's own answer has the id of a request; this one was lost on the way.
            if error.request_id or _io.now() > until:
                raise
        _io.sleep(_shared.Backoff.FIRST)


def collect(stream: LogStream, process_id: str) -> ProcessLogs:
    """Return everything a stream yields up to its end."""
    collector = _logs.LogCollector()
    with stream:
        for event in stream:
            collector.add(event)
    return collector.result(process_id)
