"""A handle of a running command: the primitive under everything that runs in a sandbox.

Reading is what moves output: `stdout`, `stderr` and `wait` take events from one stream and sort
them. A command whose output nobody takes waits with writing, as with any pipe.
"""

import codecs
from collections import deque
from contextlib import suppress
from typing import Self

from msgspec import structs

from atoll.errors import OperationNotFoundError, SandboxError, from_wire
from atoll.sdk import _aio, _stream
from atoll.sdk._async.operation import Operation
from atoll.sdk._shared import lost
from atoll.wire import ops
from atoll.wire.agent import OUTPUT_LIMIT
from atoll.wire.process import (
    ExecEvent,
    ExecRequest,
    ExecResult,
    Exited,
    Failed,
    Gap,
    ResizeRequest,
    SignalRequest,
    Started,
    Stderr,
    Stdout,
)


class ProcessInput:
    """Standard input of a running command."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self._closed = False

    async def write(self, data: bytes | str) -> None:
        """Write all of *data*; return when the sandbox has taken it.

        Raises:
            OperationNotFoundError: the command has ended.
        """
        content = _aio.as_bytes(data)
        for start in range(0, len(content), _stream.STDIN_PIECE):
            piece = content[start : start + _stream.STDIN_PIECE]
            await self._operation.control(ops.STDIN, ops.Stdin(), content=piece)

    async def close(self) -> None:
        """Let the command read the end of its input; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        with suppress(OperationNotFoundError):
            await self._operation.control(ops.STDIN, ops.Stdin(close=True), content=b"")


class ProcessOutput:
    """One output of a running command: an async iterator of bytes.

    Of output that is not read, at most `OUTPUT_LIMIT` bytes are kept while the other output is
    read; what comes then is dropped, and `truncated` says so.
    """

    def __init__(self, pump: _aio.Pump[ExecEvent], encoding: str) -> None:
        self.truncated = False
        self._pump = pump
        self._encoding = encoding
        self._chunks: deque[bytes] = deque()
        self._size = 0

    def add(self, data: bytes) -> None:
        """Keep a piece of output until it is read."""
        self.truncated = self.truncated or self._size + len(data) > OUTPUT_LIMIT
        if data and not self.truncated:
            self._chunks.append(data)
            self._size += len(data)

    def __aiter__(self) -> "ProcessOutput":
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks and not self._pump.done:
            await self._pump.advance(lambda: bool(self._chunks))
        if not self._chunks:
            raise StopAsyncIteration
        chunk = self._chunks.popleft()
        self._size -= len(chunk)
        return chunk

    async def read(self) -> bytes:
        """Return everything up to the end of the output."""
        return b"".join([chunk async for chunk in self])

    async def lines(self) -> _aio.Stream[str]:
        """Yield lines of text without their ends, as they are completed."""
        decoder = codecs.getincrementaldecoder(self._encoding)("replace")
        rest = ""
        async for chunk in self:
            *lines, rest = (rest + decoder.decode(chunk)).split("\n")
            for line in lines:
                yield line
        if rest := rest + decoder.decode(b"", final=True):
            yield rest


class ProcessHandle:
    """A running command. Use it in an `async with` block, or `kill` or `wait` for it.

    One that is dropped before its command has ended ends it, with a `ResourceWarning`.

    Attributes:
        id: of the operation.
        pid: as the processes of its session see it: one inside the sandbox, and in an isolated
            session one of its own.
        stdin: None unless it was started with ``stdin="pipe"``.
        stdout, stderr: iterators of bytes; on a terminal all output is stdout.
    """

    def __init__(self, operation: Operation, request: ExecRequest, encoding: str) -> None:
        self.id = operation.id
        self.pid = 0
        self.stdin = ProcessInput(operation) if request.open_stdin else None
        self._operation = operation
        self._request = request
        self._encoding = encoding
        self._exited: Exited | None = None
        self._failed: Failed | None = None
        events = operation.run()
        _aio.guard(self, events)
        self._pump = _aio.Pump(events, self._take)
        text = "utf-8" if encoding == "base64" else encoding
        self.stdout = ProcessOutput(self._pump, text)
        self.stderr = ProcessOutput(self._pump, text)

    def _take(self, event: ExecEvent) -> None:
        match event:
            case Started():
                self.pid = event.pid
            case Stdout():
                self.stdout.add(event.data)
            case Stderr():
                self.stderr.add(event.data)
            case Gap():
                self.stdout.truncated = self.stderr.truncated = True
            case Exited():
                self._exited = event
            case Failed():
                self._failed = event

    async def started(self) -> None:
        """Wait until the command runs.

        Raises:
            SandboxError: it could not be started.
        """
        await self._pump.advance(lambda: False)
        if self._failed is not None:
            raise self._failure()

    @property
    def exit_code(self) -> int | None:
        """The exit code once the end of the command was seen, else None; never waits."""
        return self._exited.exit_code if self._exited else None

    async def wait(self) -> Exited:
        """Wait for the end of the command; its output can still be read afterwards.

        Raises:
            OperationInterruptedError: the outcome is not known.
        """
        while not self._pump.done:
            await self._pump.advance(lambda: self._pump.done)
        if self._exited is None:
            raise self._failure()
        return self._exited

    def _failure(self) -> SandboxError:
        if self._failed is not None:
            return from_wire(self._failed.error)
        return lost("spawn", "the handle was closed")

    async def output(self) -> ExecResult:
        """Wait for the end and return the result with all output that was not read before."""
        exited = await self.wait()
        collector = _stream.Collector()
        for chunk in [chunk async for chunk in self.stdout]:
            collector.add(Stdout(data=chunk))
        for chunk in [chunk async for chunk in self.stderr]:
            collector.add(Stderr(data=chunk))
        result = collector.result(exited, self._request, self._encoding)
        cut = exited.truncated or self.stdout.truncated or self.stderr.truncated
        return structs.replace(result, truncated=cut)

    async def resize(self, cols: int, rows: int) -> None:
        """Tell the command's terminal its new size in characters."""
        await self._operation.control(ops.RESIZE, ResizeRequest(cols=cols, rows=rows))

    async def signal(self, name: str = "SIGTERM", *, tree: bool = False) -> None:
        """Send a signal to the command.

        Args:
            name: like "SIGTERM" or "TERM".
            tree: to everything it started too.

        Raises:
            ValidationFailedError: there is no signal of this name.
            OperationNotFoundError: the command has ended.
        """
        await self._operation.control(ops.SIGNAL, SignalRequest(signal=name, tree=tree))

    async def kill(self) -> None:
        """End the command and everything it started at once; nothing happens if it has ended."""
        if not self._pump.done:
            with suppress(OperationNotFoundError):
                await self.signal("SIGKILL", tree=True)

    async def aclose(self) -> None:
        """End the command if it runs, and forget it."""
        await self._pump.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()
