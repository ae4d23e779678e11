"""Commands of one start of a sandbox: frames pass through, drops are noticed, nobody is forgotten.

The agent keeps output and deduplicates ids; the engine decides when a command whose caller is gone
ends. A caller without an id of its own: at once (the agent does it, `cancel_on_drop`). A caller
with one: after `ATTACH_GRACE`, unless somebody attached meanwhile. After a restart of the engine:
after `orphan_grace`. An engine that goes cancels nothing.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import msgspec
import structlog

from atoll import errors
from atoll.engine.link.link import (
    TERMINAL,
    Endpoint,
    HungUpError,
    Link,
    LinkError,
    SilenceError,
    error_of,
)
from atoll.errors import OperationNotFoundError, ResourceBusyError, SandboxError
from atoll.host.tasks import Tasks
from atoll.wire.agent import ATTACH_GRACE, OUTPUT_LIMIT, ExecHeader
from atoll.wire.frames import Frame, Kind
from atoll.wire.process import ExecRequest

log = structlog.get_logger(__name__)

LEAVING = 0.05
"""Seconds a supervisor has to leave after its command ended; it takes a few milliseconds."""

LATE = 8.0
"""Seconds beyond a command's time limit after which its agent counts as gone. The agent ends a
supervisor that does not keep the limit itself after 3."""

OUTCOME = 2.0
"""Seconds the agent has to tell why the connection of a command broke."""

_NO_OUTPUT = 1 << 62
_OUTCOMES = (errors.CommandExecutionError, errors.KernelDiedError, errors.TimeoutError)


class Listed(msgspec.Struct):
    """One entry of the agent's ``operations``."""

    id: str
    running: bool = False
    detach: bool = False


class Listing(msgspec.Struct):
    """The agent's answer to ``operations``."""

    operations: list[Listed] = []


def exec_header(
    request: ExecRequest, id: str, *, session: str | None, cancel_on_drop: bool
) -> ExecHeader:
    """Return what the agent is asked for *request*. Pure."""
    return ExecHeader(
        op="exec",
        id=id,
        command=request.command,
        session=session,
        turn=request.turn,
        env=request.env,
        cwd=request.cwd,
        user=request.user,
        timeout=None if request.timeout_ms is None else request.timeout_ms / 1000,
        stdin=request.stdin or request.open_stdin,
        pty=request.pty,
        cols=request.cols,
        rows=request.rows,
        output_limit=OUTPUT_LIMIT if request.buffered else None,
        from_offset=request.from_offset,
        cancel_on_drop=cancel_on_drop,
    )


class Operations:
    """The operations of one start.

    Args:
        endpoint: its agent.
        orphan_grace: seconds a command found after a restart waits for its caller.
    """

    def __init__(self, endpoint: Endpoint, orphan_grace: float) -> None:
        self.endpoint = endpoint
        self._orphan_grace = orphan_grace
        self._viewers: Counter[str] = Counter()
        self._dropped: dict[str, asyncio.TimerHandle] = {}
        self._cancels = Tasks()
        self._closed = False

    @property
    def waiting(self) -> bool:
        """Whether a command is kept for a caller who may come back."""
        return bool(self._dropped or self._cancels)

    @asynccontextmanager
    async def run(
        self,
        header: Mapping[str, Any],
        stdin: AsyncIterator[bytes] | None = None,
        *,
        close: bool = True,
    ) -> AsyncIterator[AsyncIterator[Frame]]:
        """Start (or, with a known id, attach to) a command and yield its frames.

        Args:
            header: ``exec`` or ``attach`` for the agent.
            stdin: what to feed; a command this engine already knows is not fed again.
            close: whether standard input ends after it.
        """
        id: str = header["id"]
        known = id in self._viewers or id in self._dropped
        self._attach(id)
        view = _View()
        try:
            async with await self.endpoint.open(header) as link:
                feeder = _feed(link, stdin, close) if stdin and not known else None
                found = self._frames(link, header)
                async with _beside(feeder), aclosing(found), aclosing(view.frames(found)) as seen:
                    yield seen
        finally:
            self._detach(id, keep=not view.ended and not header.get("cancel_on_drop", False))

    async def _frames(self, link: Link, header: Mapping[str, Any]) -> AsyncGenerator[Frame, None]:
        """Yield an operation's frames; if its supervisor was killed, what the agent says of it."""
        try:
            async with aclosing(_in_time(link, header.get("timeout"))) as frames:
                async for frame in frames:
                    yield frame
                return
        except HungUpError:  # a frozen agent says nothing
            raise
        except LinkError as error:
            last = await self._outcome(header["id"])
            if last is None:
                raise LinkError(str(error)) from error
        yield last

    async def _outcome(self, id: str) -> Frame | None:
        """Return the error that an operation ended with behind the back of its connection."""
        await asyncio.sleep(LEAVING)
        header = {"op": "attach", "id": id, "from_offset": _NO_OUTPUT, "quiet": True}
        with suppress(LinkError, SandboxError, TimeoutError):
            async with asyncio.timeout(OUTCOME), await self.endpoint.open(header) as link:
                async for frame in link.frames():
                    if frame.kind == Kind.ERROR and isinstance(error_of(frame), _OUTCOMES):
                        return frame
        return None

    def _attach(self, id: str) -> None:
        self._viewers[id] += 1
        if timer := self._dropped.pop(id, None):
            timer.cancel()

    def _detach(self, id: str, *, keep: bool) -> None:
        self._viewers[id] -= 1
        if self._viewers[id] > 0:
            return
        del self._viewers[id]
        if keep and not self._closed:
            self._abandon(id, ATTACH_GRACE)

    def _abandon(self, id: str, grace: float) -> None:
        self._dropped[id] = asyncio.get_running_loop().call_later(grace, self._expire, id)

    def _expire(self, id: str) -> None:
        del self._dropped[id]
        self._cancels.begin(self._cancel_quietly(id))

    async def _cancel_quietly(self, id: str) -> None:
        try:
            # A background process may be looked at as an operation; it needs nobody to live.
            if not any(entry.id == id and entry.detach for entry in await self._listed()):
                await self.control(id, [(Kind.CANCEL, b"")])
        except (LinkError, SandboxError) as error:
            log.info("abandoned command was gone already", operation=id, reason=str(error))

    async def control(self, id: str, messages: list[tuple[Kind, bytes]]) -> None:
        """Send *messages* to an operation; one that has ended takes and ignores them.

        Raises:
            OperationNotFoundError: the agent knows no such operation.
        """

        async def send(link: Link) -> None:
            for kind, payload in messages:
                await link.send(kind, payload)

        await self._hand_over(id, send)

    async def feed(self, id: str, body: AsyncIterator[bytes], *, close: bool) -> None:
        """Send standard input to an operation; raise as `control`."""

        async def send(link: Link) -> None:
            async for chunk in body:
                await link.send_chunks(Kind.STDIN, chunk)
            if close:
                await link.send(Kind.STDIN_CLOSE)

        await self._hand_over(id, send)

    async def _hand_over(self, id: str, send: Callable[[Link], Awaitable[None]]) -> None:
        try:
            await self.endpoint.outlast(self._talk(id, send))
        except SilenceError:  # it would say nothing of the command's end either
            raise
        except (LinkError, ResourceBusyError):
            # Its supervisor may just have left with the command's end. Then the agent says so.
            await asyncio.sleep(LEAVING)
            if not await self.endpoint.outlast(self._has_ended(id)):
                raise

    async def _talk(self, id: str, send: Callable[[Link], Awaitable[None]]) -> bytes:
        async with await self.endpoint.open({"op": "control", "id": id}) as link:
            with suppress(LinkError):  # the answer says why
                await send(link)
                await link.send(Kind.END)
            return await link.reply(timeout=None)

    async def _has_ended(self, id: str) -> bool:
        async def nothing(_: Link) -> None:
            pass

        reply = msgspec.json.decode(await self._talk(id, nothing), type=dict[str, Any])
        return reply.get("running") is False

    async def find_orphans(self) -> None:
        """After a restart: give every running command `orphan_grace` to be attached to."""
        for entry in await self._listed():
            if entry.running and not entry.detach and entry.id not in self._viewers:
                self._abandon(entry.id, self._orphan_grace)

    async def any_running(self) -> bool:
        """Whether the agent runs a command for anybody."""
        return any(entry.running and not entry.detach for entry in await self._listed())

    async def _listed(self) -> list[Listed]:
        reply = await self.endpoint.call({"op": "operations"})
        try:
            return msgspec.json.decode(reply, type=Listing).operations
        except msgspec.MsgspecError as error:
            raise LinkError(f"the agent's list of operations is malformed ({error})") from error

    def close(self) -> None:
        """Forget all timers: the sandbox stops, or the engine does. Nothing is cancelled."""
        self._closed = True
        for timer in self._dropped.values():
            timer.cancel()
        self._dropped.clear()


class _View:
    """Remembers whether the end of an operation was seen."""

    ended = False

    async def frames(self, found: AsyncIterator[Frame]) -> AsyncGenerator[Frame, None]:
        async for frame in found:
            self.ended = frame.kind in TERMINAL
            yield frame


async def _in_time(link: Link, limit: float | None) -> AsyncGenerator[Frame, None]:
    """Yield frames; from its start on a command has *limit* seconds, and `LATE` between frames."""
    now, end = asyncio.get_running_loop().time, 0.0
    frames = link.frames()
    while True:
        try:
            async with asyncio.timeout_at(max(end, now() + LATE) if end else None):
                frame = await anext(frames, None)
        except TimeoutError as error:
            raise LinkError(f"the agent did not end the command within {limit} s") from error
        if frame is None:
            return
        if frame.kind == Kind.STARTED and limit is not None:
            end = now() + limit + LATE
        yield frame


async def _feed(link: Link, stdin: AsyncIterator[bytes], close: bool) -> None:
    if close:
        await link.send_all(stdin, Kind.STDIN, Kind.STDIN_CLOSE)
    else:
        with suppress(LinkError):
            async for chunk in stdin:
                await link.send_chunks(Kind.STDIN, chunk)


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None] | None) -> AsyncIterator[None]:
    """Run *work* meanwhile; it is over, one way or the other, when the block is."""
    task = asyncio.create_task(work) if work else None
    try:
        yield
    finally:
        if task:
            task.cancel()
            await asyncio.wait([task])


def not_found(id: str) -> OperationNotFoundError:
    """Return the error for an operation of a sandbox that is not running."""
    return OperationNotFoundError(
        f"no operation {id!r}: the sandbox is not running",
        context={"operation": id},
        suggestion="an operation ends with the start of the sandbox it belongs to",
    )
