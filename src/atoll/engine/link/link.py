"""The engine's side of one connection to an agent: one operation, one header, frames both ways.

The agent sits beside hostile root and is not trusted. Whatever it sends is bounded (one frame, one
read buffer), checked before anybody else sees it, and never ends more than its own operation:
garbage, a frame that announces gigabytes, an answer of the wrong kind, silence and a cut stream
all become `LinkError`. The kernel's socket buffers give back-pressure; nothing queues here.

Plain socket calls, not asyncio's streams: those drop what was received when a write fails, and an
agent that refuses an upload says why in just such a moment.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar
from weakref import WeakSet

import msgspec

from atoll.engine.link import checks
from atoll.engine.link.body import Body
from atoll.errors import FileTooLargeError, NotSupportedByRuntimeError, SandboxError, from_wire
from atoll.runtime.base import TOKEN_FILE, Runtime
from atoll.wire import frames
from atoll.wire.agent import HEARTBEAT_INTERVAL
from atoll.wire.frames import Frame, Kind

T = TypeVar("T")

SILENCE = 4 * HEARTBEAT_INTERVAL
"""Seconds without any frame after which an operation counts as lost: four missed heartbeats."""

ASK_AFTER = float(HEARTBEAT_INTERVAL)
"""Seconds that an answer that may take any time is waited for until the agent is asked something else."""

TERMINAL = frozenset({Kind.REPLY, Kind.ERROR, Kind.EXITED})
_ENDS = frozenset({Kind.EXITED, Kind.ERROR})
_READ = 2 * frames.CHUNK
"""Bytes read at once: a usual frame with its header, and the beginning of the next."""

_BODY_READ = 1 << 18
"""Bytes of a file's body read at once: what the buffers of a unix socket hold."""

_OF_COMMANDS = _ENDS | checks.OUTPUT | {Kind.STARTED, Kind.GAP, Kind.HEARTBEAT}


class LinkError(Exception):
    """The connection to the agent is of no more use; the outcome of its operation is not known."""


class SilenceError(LinkError):
    """The agent neither spoke nor listened for longer than it may."""


class HungUpError(LinkError):
    """We ended the connection ourselves: the sandbox is being frozen."""


class Link:
    """One operation's connection. Use as a context manager: leaving it closes the connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._decoder = frames.Decoder()
        self._received = self._decoder.feed(b"")
        self.end = b""  # what the END of a body told
        self._hung_up = False

    @classmethod
    async def open(
        cls, connection: socket.socket, header: Mapping[str, Any], fds: Sequence[int] = ()
    ) -> Self:
        """Take over a connected, non-blocking socket; send the header and duplicates of *fds*.

        Raises:
            LinkError: the agent hung up.
            FileTooLargeError: the header is more than one frame can hold.
        """
        link = cls(connection)
        try:
            await link.send_header(_packed(header), fds)
        except BaseException:
            link.close()
            raise
        return link

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; nobody may read or write any more."""
        self._socket.close()

    async def part(self, patience: float) -> None:
        """Send nothing more; wait *patience* seconds at most until the agent has read it all."""
        with suppress(OSError, TimeoutError):
            self._socket.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(patience):
                while await self._loop.sock_recv(self._socket, _READ):
                    pass

    def hang_up(self) -> None:
        """End the connection while somebody reads from it, because the sandbox is being frozen."""
        self._hung_up = True
        self.cut()

    def cut(self) -> None:
        """End the connection while somebody reads from it; what has come already can be read."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    async def send(self, kind: int, payload: bytes = b"") -> None:
        """Send one frame; wait while the agent does not read.

        Raises:
            LinkError: the agent hung up; what it had to say can still be read.
        """
        try:
            await self._loop.sock_sendall(self._socket, frames.encode(kind, payload))
        except OSError as error:
            raise self._broken(f"the agent hung up ({error})") from error

    async def send_header(self, payload: bytes, fds: Sequence[int]) -> None:
        """Send the HEADER, with *fds* beside its first bytes; raise as `send`."""
        frame = frames.encode(Kind.HEADER, payload)
        try:
            sent = socket.send_fds(self._socket, [frame], list(fds)) if fds else 0
            await self._loop.sock_sendall(self._socket, frame[sent:])
        except OSError as error:
            raise self._broken(f"the agent hung up ({error})") from error

    async def frames(
        self,
        silence: float | None = SILENCE,
        ends: Collection[int] = _ENDS,
        kinds: Collection[int] = _OF_COMMANDS,
    ) -> AsyncIterator[Frame]:
        """Yield checked frames up to and including the one that ends the operation.

        Args:
            ends: kinds that end it.
            kinds: what may come; by default what a command sends.
            silence: seconds without a frame until the agent counts as gone; None: no limit.

        Raises:
            LinkError: the stream ended early, is malformed, or nothing came for *silence*.
        """
        while True:
            frame = await self._next(silence)
            if frame.kind not in kinds:
                raise LinkError(f"the agent sent a frame of kind {frame.kind} here")
            yield frame
            if frame.kind in ends:
                return

    async def _next(self, silence: float | None) -> Frame:
        until: float | None = None  # of the whole frame: one that drips says nothing
        while True:
            try:
                for frame in self._received:
                    checks.check(frame)
                    return frame
            except (frames.FrameError, msgspec.MsgspecError) as error:
                raise LinkError(f"the agent sent something malformed ({error})") from error
            if silence is not None and until is None:
                until = self._loop.time() + silence
            self._received = self._decoder.feed(await self._read(until, _READ))

    async def _read(self, until: float | None, size: int) -> bytes:
        try:
            async with asyncio.timeout_at(until):
                data = await self._loop.sock_recv(self._socket, size)
        except TimeoutError as error:
            raise SilenceError("the agent said nothing for too long") from error
        except OSError as error:
            raise self._broken(f"the connection to the agent broke ({error})") from error
        if not data:
            raise self._broken("the agent hung up before the operation ended")
        return data

    def _broken(self, how: str) -> LinkError:
        return HungUpError(how) if self._hung_up else LinkError(how)

    async def reply(
        self, timeout: float | None = SILENCE, *, silence: float | None = None
    ) -> bytes:
        """Return the JSON of the operation's REPLY.

        Args:
            timeout: seconds for the whole answer, heartbeats or not.
            silence: seconds without any frame; None: any time.

        Raises:
            SandboxError: the agent's own error, rebuilt from its envelope.
            SilenceError: nothing came for *silence*.
            LinkError: there was no proper answer.
        """
        try:
            async with asyncio.timeout(timeout):
                return (await self._expect(Kind.REPLY, silence)).payload
        except TimeoutError as error:
            raise LinkError(f"no answer from the agent within {timeout} s") from error

    async def body(self, silence: float | None = SILENCE) -> AsyncIterator[bytes]:
        """Yield the DATA payloads that follow a REPLY, up to END; raise as `reply`."""
        self._received.close()
        body, data = Body(), self._decoder.take_rest()
        while True:
            try:
                for piece in body.feed(data):
                    if isinstance(piece, bytes):
                        yield piece
                    elif not _goes_on(piece):
                        self.end = piece.payload
                        return
            except frames.FrameError as error:
                raise LinkError(f"the agent sent something malformed ({error})") from error
            until = None if silence is None else self._loop.time() + silence
            data = await self._read(until, _BODY_READ)

    async def _expect(self, kind: Kind, silence: float | None) -> Frame:
        while (frame := await self._next(silence)).kind == Kind.HEARTBEAT:
            pass
        if frame.kind == Kind.ERROR:
            raise error_of(frame)
        if frame.kind == kind:
            return frame
        raise LinkError(f"the agent answered with a frame of kind {frame.kind}")

    async def send_all(self, body: AsyncIterator[bytes], kind: Kind, end: Kind) -> None:
        """Send *body* as frames of *kind*, then *end*; an agent that stops reading ends it early.

        What the agent has to say about it comes by `reply` or `frames`.
        """
        with suppress(LinkError):
            async for chunk in body:
                await self.send_chunks(kind, chunk)
            await self.send(end)

    async def send_chunks(self, kind: Kind, data: bytes) -> None:
        """Send *data* in frames of at most `CHUNK` bytes; raise as `send`."""
        for start in range(0, len(data), frames.CHUNK):
            await self.send(kind, data[start : start + frames.CHUNK])

    async def send_piece(self, data: bytes, silence: float | None = None) -> None:
        """Send a piece of a file's body, without copying it; raise as `send`.

        Raises:
            SilenceError: the agent did not take it within *silence* seconds.
        """
        try:
            async with asyncio.timeout(silence):
                await self._send_piece(data)
        except TimeoutError as error:
            raise SilenceError(f"the agent took nothing for {silence} s") from error

    async def _send_piece(self, data: bytes) -> None:
        view = memoryview(data)
        for start in range(0, len(data), frames.MAX_FRAME):
            part = view[start : start + frames.MAX_FRAME]
            head = frames.encode_head(Kind.DATA, len(part))
            try:
                with suppress(BlockingIOError):
                    sent = self._socket.sendmsg([head, part])
                    head, part = head[sent:], part[max(0, sent - len(head)) :]
                await self._loop.sock_sendall(self._socket, head)
                await self._loop.sock_sendall(self._socket, part)
            except OSError as error:
                raise self._broken(f"the agent hung up ({error})") from error


def _goes_on(frame: Frame) -> bool:
    """Tell whether a body goes on after a frame in it that is no part of it."""
    checks.check(frame)
    if frame.kind == Kind.ERROR:
        raise error_of(frame)
    if frame.kind not in {Kind.HEARTBEAT, Kind.END}:
        raise frames.FrameError(f"frame of kind {frame.kind} in a body")
    return frame.kind == Kind.HEARTBEAT


def _packed(header: Mapping[str, Any]) -> bytes:
    packed = json.dumps(header).encode()
    if len(packed) > frames.MAX_FRAME:
        raise FileTooLargeError(
            f"the request has {len(packed)} bytes without its body",
            context={"limit": frames.MAX_FRAME},
            suggestion="pass less at once: commands, environments and paths are not streamed",
        )
    return packed


def error_of(frame: Frame) -> SandboxError:
    """Return the error an ERROR frame holds; a malformed one is a plain `SandboxError`."""
    try:
        body = msgspec.json.decode(frame.payload)
    except msgspec.MsgspecError:
        body = None
    return from_wire(body)


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint:
    """Where the agent of one start of a sandbox is reached, and the open connections to it."""

    runtime: Runtime
    run_dir: Path
    host_ref: str
    generation: int
    _links: "WeakSet[Link]" = field(default_factory=WeakSet, repr=False)
    tasks: set[asyncio.Task[None]] = field(default_factory=set, repr=False)  # end with their links

    async def open(self, header: Mapping[str, Any], fds: Sequence[int] = ()) -> Link:
        """Start an operation; *fds* are handed to the agent with its header.

        Raises:
            LinkError: nobody listens there any more.
            NotSupportedByRuntimeError: descriptors cannot travel to this agent.
        """
        try:
            connection = await self.runtime.dial(self.run_dir, self.host_ref)
        except OSError as error:
            raise LinkError(f"the agent cannot be reached ({error})") from error
        if connection.family != socket.AF_UNIX:
            try:
                header = self._authorized(header, fds)
            except BaseException:
                connection.close()
                raise
        link = await Link.open(connection, header, fds)
        self._links.add(link)
        return link

    def hang_up(self) -> None:
        """End every connection because the sandbox is being frozen: who reads one sees its end."""
        for link in list(self._links):
            link.hang_up()

    def cut(self) -> None:
        """End every connection because the container is gone.

        A kernel of its own (gVisor's) is gone with it, and told no peer: without this, who reads a
        connection would wait for `SILENCE` to pass.
        """
        for link in list(self._links):
            link.cut()

    def _authorized(self, header: Mapping[str, Any], fds: Sequence[int]) -> Mapping[str, Any]:
        """Return what is sent by TCP: everybody inside can connect, only we know the token."""
        if fds:
            raise NotSupportedByRuntimeError(
                f"the runtime {self.runtime.level} cannot hand files to its sandboxes",
                context={"runtime": self.runtime.level, "op": header.get("op")},
            )
        try:
            token = (self.run_dir / TOKEN_FILE).read_text()
        except OSError as error:
            raise LinkError(f"the agent's token is gone ({error})") from error
        return {**header, "token": token}

    async def call(self, header: Mapping[str, Any], timeout: float | None = SILENCE) -> bytes:
        """Run a unary operation and return the JSON of its reply; raise as `Link.reply`."""
        async with await self.open(header) as link:
            return await link.reply(timeout)

    async def outlast(self, answer: Coroutine[Any, Any, T]) -> T:
        """Return an *answer* that may take any time, as long as the agent answers others meanwhile.

        So it is where a command does not read its input, or code has to end first.

        Raises:
            SilenceError: the agent answers nobody.
            Exception: what *answer* raises.
        """
        waiting = asyncio.create_task(answer)
        try:
            while not (await asyncio.wait({waiting}, timeout=ASK_AFTER))[0]:
                await self._ask(waiting)
            return waiting.result()
        finally:
            waiting.cancel()
            await asyncio.wait({waiting})

    async def _ask(self, waiting: asyncio.Task[Any]) -> None:
        try:
            await self.call({"op": "operations"})
        except LinkError as error:
            if not waiting.done():
                raise SilenceError(f"the agent answers nobody ({error})") from error
        except SandboxError:
            pass  # it speaks
