"""A terminal over WebSocket: bytes both ways as binary messages, JSON as text for the rest.

In: ``{"type":"resize","cols":…,"rows":…}``. Out: ``{"type":"ready"}`` before any output, and last
``{"type":"exit","code":…}`` (with ``signal``) or ``{"type":"error","message":…}``. What goes wrong
before ``ready`` is an ordinary error answer to the upgrade.
"""

import asyncio
import builtins
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from atoll.engine.commands import calls
from atoll.engine.engine import Engine
from atoll.engine.link.link import LinkError, error_of
from atoll.engine.sandbox import Sandbox
from atoll.errors import SandboxError
from atoll.server.bridge import requests, terminals
from atoll.server.bridge.failures import invalid
from atoll.server.bridge.terminals import Wanted
from atoll.wire import frames
from atoll.wire.frames import Frame, Kind
from atoll.wire.records import Exit

STUCK = 30.0
"""Seconds input may wait for a program that does not read. While it waits nobody would notice
that the caller is gone."""

MAX_SIZE = 10_000
"""Columns or rows; the kernel's own limit is 65,535."""

_Size = Annotated[int, msgspec.Meta(ge=1, le=MAX_SIZE)]
_FAULT, _TOO_SLOW = 1011, 1008


class Resize(msgspec.Struct):
    """The one message that is not keystrokes."""

    type: Literal["resize"]
    cols: _Size
    rows: _Size


async def without_upgrade(_engine: Engine, _request: Request) -> Response:
    """Refuse a request that is no WebSocket."""
    raise invalid("WebSocket upgrade required")


def wanted(connection: HTTPConnection) -> Wanted:
    """Return the terminal that the query asks for.

    Raises:
        ValidationFailedError: a size is not a number, the session cannot be one.
    """
    query = connection.query_params
    session = query.get("session") or requests.session(connection)
    shell = query.get("shell") or None
    if shell and "\0" in shell:
        raise invalid("shell must not have a NUL character")
    return Wanted(
        cols=_size(query.get("cols"), 80),
        rows=_size(query.get("rows"), 24),
        shell=shell,
        session=requests.checked_session(session) if session else None,
    )


def _size(text: str | None, default: int) -> int:
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= MAX_SIZE):
        raise invalid("cols and rows must be valid numbers")
    return int(text)


async def serve(engine: Engine, websocket: WebSocket) -> None:
    """Answer one connection, from its upgrade to its end."""
    asked = wanted(websocket)
    found = requests.sandbox(engine, websocket)
    await requests.known_session(found, asked.session)
    async with terminals.opened(found, asked) as (id, output):
        first = await anext(output)
        if first.kind == Kind.ERROR:
            raise error_of(first)
        with suppress(WebSocketDisconnect):
            await websocket.accept()
            await websocket.send_json({"type": "ready"}, mode="text")
            await _Terminal(websocket, found, id).run(first, output)


class _Terminal:
    """The two directions of an open terminal.

    Args:
        websocket: accepted.
        found: the sandbox.
        id: the terminal's operation.
    """

    def __init__(self, websocket: WebSocket, found: Sandbox, id: str) -> None:
        self._websocket = websocket
        self._found = found
        self._id = id
        self._keys: asyncio.Queue[bytes] = asyncio.Queue(1)

    async def run(self, first: Frame, output: AsyncIterator[Frame]) -> None:
        """Return when the terminal ends, or its caller has left."""
        sides = [
            asyncio.create_task(self._show(first, output)),
            asyncio.create_task(self._listen()),
        ]
        # How the feed ends says nothing: it may be a moment before the end of the program is known.
        feed = asyncio.create_task(self._feed())
        try:
            await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*sides, feed):
                task.cancel()
            await asyncio.wait({*sides, feed})
        for task in sides:
            if not task.cancelled():
                task.result()

    async def _show(self, first: Frame, output: AsyncIterator[Frame]) -> None:
        """Pass output on to the caller, and how it ended."""
        try:
            await self._frame(first)
            async for frame in output:
                await self._frame(frame)
        except (SandboxError, LinkError) as error:
            await self._fault(str(error))
            return
        await self._close(1000)

    async def _frame(self, frame: Frame) -> None:
        if frame.kind == Kind.STDOUT:
            await self._websocket.send_bytes(frames.decode_output(frame.payload).data)
        elif frame.kind == Kind.EXITED:
            ended = msgspec.json.decode(frame.payload, type=Exit)
            message: dict[str, Any] = {"type": "exit", "code": ended.exit_code}
            await self._tell(message | ({"signal": ended.signal} if ended.signal else {}))
        elif frame.kind == Kind.ERROR:
            raise error_of(frame)

    async def _listen(self) -> None:
        """Take what the caller sends until it leaves."""
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if data := message.get("bytes"):
                try:
                    await asyncio.wait_for(self._keys.put(data), STUCK)
                except builtins.TimeoutError:
                    await self._close(_TOO_SLOW)
                    return
            elif text := message.get("text"):
                await self._order(text)

    async def _order(self, text: str) -> None:
        try:
            size = msgspec.json.decode(text, type=Resize)
        except msgspec.MsgspecError:  # of a newer client, or of no client at all
            return
        with suppress(SandboxError):  # the terminal has ended; the output says so
            await terminals.resize(self._found, self._id, size.cols, size.rows)

    async def _feed(self) -> None:
        with suppress(SandboxError, LinkError):
            await calls.feed(self._found, self._id, self._typed(), close=False)

    async def _typed(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._keys.get()

    async def _fault(self, text: str) -> None:
        await self._tell({"type": "error", "message": text})
        await self._close(_FAULT)

    async def _tell(self, message: dict[str, Any]) -> None:
        await self._websocket.send_text(msgspec.json.encode(message).decode())

    async def _close(self, code: int) -> None:
        if self._websocket.application_state is WebSocketState.CONNECTED:
            await self._websocket.close(code)
