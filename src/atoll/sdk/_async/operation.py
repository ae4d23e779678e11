"""One command and its output, over as many connections as it takes.

The caller chooses the operation's id, so a stream that is lost is attached again from the byte
after the last one received. Whoever stops listening before the end (a cancelled task, Ctrl-C, a
stream that is closed or collected) ends the command: without a caller nobody would read its output.
"""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from typing import Any, Generic, Protocol, TypeVar

from atoll.errors import EngineUnreachableError, OperationNotFoundError, SandboxError
from atoll.sdk import _aio, _shared
from atoll.sdk._async.target import Address
from atoll.sdk._async.transport import (
    ANSWER_SECONDS,
    SILENCE_SECONDS,
    Body,
    ConnectionLostError,
    chunks_of,
)
from atoll.sdk._stream import Reader
from atoll.wire import ops
from atoll.wire.base import Done, Empty, Request
from atoll.wire.frames import CONTENT_TYPE
from atoll.wire.process import ExecEvent, ExecRequest, Failed

CANCEL_SECONDS = 1.0
"""How long a cancelled call waits until the engine has ended its command."""


EventT_co = TypeVar("EventT_co", covariant=True)


class EventReader(Protocol[EventT_co]):
    """Turns the bytes of an answer into events, over as many connections as it takes."""

    position: int
    finished: bool

    def resume(self) -> int:
        """Prepare for a new connection; return the offset to attach from."""

    def progressed(self) -> bool:
        """Whether any frame came since this was asked last."""

    def feed(self, data: bytes) -> Iterator[EventT_co]:
        """Yield the events completed by *data*."""


class Running(Generic[EventT_co]):
    """Something that runs at an engine and has output. `run` starts it and yields its events, once.

    Args:
        op: how it is started.
        reader: of its events.
        body: frames to send in place of the request.
    """

    def __init__(
        self,
        address: Address,
        op: ops.Op[Any, Any],
        request: Request,
        reader: EventReader[EventT_co],
        *,
        body: Body | None = None,
    ) -> None:
        self.id = _shared.new_operation_id()
        self._address = address
        self._op = op
        self._request = request
        self._body = body
        self._reader = reader
        self._tries = 0
        self._stalled = 0.0
        self._scope: object = None

    async def run(self) -> _aio.Stream[EventT_co | Failed]:
        """Start it and yield its events; leaving early cancels it.

        Raises:
            SandboxError: it could not be started.
        """
        reader = self._reader
        try:
            await self._address.ensure()
            while not reader.finished:
                with suppress(ConnectionLostError):
                    async with self._answer() as answer, aclosing(chunks_of(answer)) as chunks:
                        # Read to the end, past the last event: so the connection is used again.
                        async for chunk in chunks:
                            for event in reader.feed(chunk):
                                yield event
                if not reader.finished:
                    await self._pause()
        except SandboxError as error:
            reader.finished = True
            if self._tries <= 1:
                raise
            yield Failed(error=_outcome(error).to_wire(), offset=reader.position)
        finally:
            # A copy in a forked child is dropped without a word: the command is its parent's.
            if self._tries and not reader.finished and self._scope == _aio.scope():
                await _aio.finish(self._abandon, CANCEL_SECONDS)

    def _answer(self) -> AbstractAsyncContextManager[Any]:
        """Send the command, the first time; then attach from where the events ended."""
        self._tries += 1
        send = self._address.transport.send
        if self._tries == 1:
            self._stalled, self._scope = _aio.now(), _aio.scope()
            call = _shared.build_call(self._op, self._address.params, self._request, key=self.id)
            if self._body is not None:
                call.headers["content-type"] = CONTENT_TYPE
            ready = self._address.ready
            return send(call, content=self._body, ready=ready, timeout=SILENCE_SECONDS)
        request = ops.Attach(from_offset=self._reader.resume())
        call = _shared.build_call(ops.ATTACH, self.params, request)
        return send(call, patience=_shared.RECONNECT_SECONDS, timeout=SILENCE_SECONDS)

    async def _pause(self) -> None:
        """Wait before attaching again; give up when nothing new came for too long."""
        if self._reader.progressed():
            self._stalled = _aio.now()
        elif _aio.now() - self._stalled > SILENCE_SECONDS + _shared.RECONNECT_SECONDS:
            raise _shared.lost("exec", "its stream broke again and again")
        await _aio.sleep(_shared.Backoff.FIRST)

    @property
    def params(self) -> dict[str, str]:
        """Values for the placeholders of paths."""
        return self._address.params | {"operation": self.id}

    async def _abandon(self) -> None:
        with suppress(SandboxError):
            await self.control(ops.CANCEL, Empty(), patience=0.0, timeout=CANCEL_SECONDS)

    async def control(
        self,
        op: ops.Op[Any, Done],
        request: Request,
        *,
        content: bytes | None = None,
        patience: float | None = None,
        timeout: float = ANSWER_SECONDS,
    ) -> None:
        """Cancel, signal, resize or feed the running command."""
        await self._address.transport.call(
            op, self.params, request, content=content, patience=patience, timeout=timeout
        )


class Operation(Running[ExecEvent]):
    """A command at an engine."""

    def __init__(
        self,
        address: Address,
        request: ExecRequest,
        *,
        body: Body | None = None,
        encoding: str = "utf-8",
    ) -> None:
        super().__init__(address, ops.EXEC, request, Reader(encoding), body=body)


def _outcome(error: SandboxError) -> SandboxError:
    """Return the error of a command that was started and cannot be followed any more."""
    if isinstance(error, OperationNotFoundError | EngineUnreachableError):
        return _shared.lost("exec", error.message)
    return error
