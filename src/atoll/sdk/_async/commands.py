"""Running commands: with a result, as a stream of events, or with a handle.

`exec` and `exec_stream` are thin on `Operation`, like `spawn`. A string is a script for the shell
of the session; a list is run as it is, without a shell.
"""

from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import IO, Any, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from atoll.errors import SandboxError
from atoll.sdk import _aio, _arguments, _shared, _stream
from atoll.sdk._async.operation import Operation
from atoll.sdk._async.process import ProcessHandle
from atoll.sdk._async.streams import ExecStream
from atoll.sdk._async.target import Address, Target
from atoll.sdk._async.transport import Body
from atoll.wire import frames, ids, ops
from atoll.wire.base import Duration
from atoll.wire.process import (
    DEFAULT_TIMEOUT_MS,
    EnvRequest,
    ExecRequest,
    ExecResult,
    Exited,
    Failed,
    Stderr,
    Stdout,
)
from atoll.wire.snapshots import TakeSnapshot

Command: TypeAlias = str | Sequence[str]
Bytes: TypeAlias = bytes | bytearray | memoryview
Input: TypeAlias = str | Bytes | IO[Any] | Iterable[bytes | str] | AsyncIterable[bytes | str]
OnOutput: TypeAlias = Callable[[Literal["stdout", "stderr"], str], object]


_PATIENCE = 600.0
"""Seconds for a snapshot: without btrfs on the host it takes as long as its bytes do."""


class Commands(Target):
    """Commands of a sandbox or session. Commands of one session run one after the other."""

    def __init__(
        self,
        address: Address,
        session: str | None = None,
        command_timeout_ms: int | None = None,
    ) -> None:
        super().__init__(address, session)
        self._timeout_ms = command_timeout_ms or DEFAULT_TIMEOUT_MS

    async def exec(
        self,
        command: Command,
        *,
        timeout: Duration | UnsetType | None = UNSET,
        env: Mapping[str, str | None] | None = None,
        cwd: str | None = None,
        stdin: Input | None = None,
        user: str | int | None = None,
        session: str | None = None,
        stream: bool = False,
        on_output: OnOutput | None = None,
        on_complete: Callable[[ExecResult], object] | None = None,
        on_error: Callable[[SandboxError], object] | None = None,
        encoding: str = "utf-8",
        check: bool = False,
        snapshot_before: bool = False,
    ) -> ExecResult:
        """Run a command to its end and return its exit code and output.

        Args:
            command: text for the shell, or a list of arguments that is run without one.
            timeout: seconds (or "30s", "5m", …) until the whole process tree is killed; None: no
                limit. Default: the `command_timeout` of the session that this is called on, else
                120 s. It counts from the command's start: the wait for earlier commands of the
                session is not part of it. To bound the whole call, cancel it.
            env: variables of this command only; None as a value unsets one.
            cwd: working directory of this command; relative paths start at the session's.
            stdin: text, bytes, a file object or an (async) iterable; empty when not given.
            user: name, uid or "uid:gid"; the sandbox's user when not given.
            session: id of the session to run in.
            stream: deliver output while the command runs even without `on_output`; the result
                is the same.
            on_output: called with "stdout" or "stderr" and text, as it arrives.
            on_complete: called with the result.
            on_error: called with the error that is raised.
            encoding: of `stdout` and `stderr` in the result: a codec, or "base64". The exact
                bytes are always there as well.
            check: raise when the exit code is not 0.
            snapshot_before: take a snapshot first. `snapshot_id` of the result, or
                `context["snapshot"]` of an error, is what `restore` goes back to.

        Raises:
            TimeoutError: the time is over; `.result` has the output so far.
            SessionTerminatedError: the command ended the shell of its session; `.result` and
                `.context` tell how.
            CommandFailedError: with `check`, the exit code is not 0; `.result` is the result.
            OperationInterruptedError: the command was cancelled, or its outcome is not known.
        """
        _arguments.callbacks(on_output=on_output, on_complete=on_complete, on_error=on_error)
        _arguments.flags(stream=stream, check=check, snapshot_before=snapshot_before)
        request = self._request(command, timeout, env, cwd, user, session)
        request = _stream.for_result(request, live=stream or on_output is not None)
        operation = self._start(request, stdin, encoding)
        before = await self._snapshot(request) if snapshot_before else None
        try:
            result = await _result(operation, request, on_output, encoding, check=check)
            result = _stream.after(result, before)
        except SandboxError as error:
            _stream.note_snapshot(error, before)
            await _aio.call(on_error, error)
            raise
        await _aio.call(on_complete, result)
        return result

    def exec_stream(
        self,
        command: Command,
        *,
        timeout: Duration | UnsetType | None = UNSET,
        env: Mapping[str, str | None] | None = None,
        cwd: str | None = None,
        stdin: Input | None = None,
        user: str | int | None = None,
        session: str | None = None,
        encoding: str = "utf-8",
    ) -> ExecStream:
        """Return the events of a command, which starts with the first of them.

        The stream ends with `Exited`, or with `Failed` when the outcome is not known. Closing
        the stream early (`async with stream:`) ends the command, leaving the loop alone does not.
        Options as for `exec`.

        Raises:
            SandboxError: (by the iteration) the command could not be started.
        """
        request = self._request(command, timeout, env, cwd, user, session)
        operation = self._start(request, stdin, encoding)
        return ExecStream(operation.run(), request)

    async def spawn(
        self,
        command: Command,
        *,
        stdin: Literal["pipe"] | Input | None = "pipe",
        pty: bool = False,
        cols: int = 80,
        rows: int = 24,
        timeout: Duration | None = None,
        env: Mapping[str, str | None] | None = None,
        cwd: str | None = None,
        user: str | int | None = None,
        session: str | None = None,
        encoding: str = "utf-8",
    ) -> ProcessHandle:
        """Start a command and return a handle of it. It has no shell state and no time limit.

        Args:
            command: text for a shell, or a list of arguments that is run without one.
            stdin: "pipe" for a handle with `.stdin`, None for empty, or the input as in `exec`
                (text that is itself ``pipe`` must be given as bytes).
            pty: run it on a terminal; all its output is stdout then.
            cols: width of the terminal in characters.
            rows: height of the terminal in lines.
            timeout: seconds until the whole process tree is killed; None: no limit.
            env: variables of this command; None as a value unsets one.
            cwd: working directory.
            user: name, uid or "uid:gid".
            session: id of a session, whose working directory and variables it starts with; it
                runs beside the session's commands and ends when the session is deleted.
            encoding: of text in `output()` and `lines()`.

        Raises:
            SandboxError: it could not be started.
        """
        request = self._request(command, timeout, env, cwd, user, session)
        request = _stream.for_handle(request, pipe=stdin == "pipe", pty=pty, cols=cols, rows=rows)
        source = None if stdin == "pipe" else stdin
        operation = self._start(request, source, encoding)
        handle = ProcessHandle(operation, request, encoding)
        await handle.started()
        return handle

    async def set_env_vars(self, env: Mapping[str, str | None]) -> None:
        """Set variables (None unsets) for all later commands; they survive restarts."""
        await self._call(
            ops.SET_ENV, EnvRequest(env=_arguments.mapping("env", env), session=self._session)
        )

    def _request(
        self,
        command: Command,
        timeout: Duration | UnsetType | None,
        env: Mapping[str, str | None] | None,
        cwd: str | None,
        user: str | int | None,
        session: str | None,
    ) -> ExecRequest:
        default = self._timeout_ms
        request = ExecRequest(
            command=_arguments.check_command(command),
            timeout_ms=default if timeout is UNSET else _arguments.time_limit(timeout),
            env=_arguments.mapping("env", env),
            cwd=cwd,
            user=_arguments.user(user),
            session=self._session if session is None else ids.check_session(session),
            shell_state=isinstance(command, str),
        )
        _shared.check_request(request)
        return request

    async def _snapshot(self, request: ExecRequest) -> str:
        wanted = TakeSnapshot(name=_stream.snapshot_name(request))
        return (await self._call(ops.TAKE_SNAPSHOT, wanted, timeout=_PATIENCE)).id

    def _start(self, request: ExecRequest, stdin: Input | None, encoding: str) -> Operation:
        _arguments.check_encoding(encoding)
        if stdin is None:
            return Operation(self._address, request, encoding=encoding)
        _arguments.check_content("stdin", stdin)
        request = _stream.with_input(request)
        body: Body
        if isinstance(stdin, str | bytes | bytearray | memoryview):
            body = _stream.input_frames(request, stdin)
        else:
            body = _framed(request, stdin)
        return Operation(self._address, request, body=body, encoding=encoding)


async def _framed(request: ExecRequest, stdin: Any) -> _aio.Stream[bytes]:
    yield _stream.header_frame(request)
    async for piece in _aio.pieces(stdin):
        for frame in _stream.stdin_frames(piece):
            yield frame
    yield frames.encode(frames.Kind.STDIN_CLOSE)


async def _result(
    operation: Operation,
    request: ExecRequest,
    on_output: OnOutput | None,
    encoding: str,
    *,
    check: bool,
) -> ExecResult:
    collector = _stream.Collector()
    exited = None
    async with aclosing(operation.run()) as events:
        async for event in events:
            collector.add(event)
            if isinstance(event, Stdout | Stderr) and event.text:
                name = "stdout" if isinstance(event, Stdout) else "stderr"
                await _aio.call(on_output, name, event.text)
            elif isinstance(event, Exited):
                exited = event
            elif isinstance(event, Failed):
                raise _stream.failure(event, collector, request, encoding)
    if exited is None:
        raise _shared.lost("exec", "its stream ended")
    return _stream.check_exit(exited, collector.result(exited, request, encoding), check=check)
