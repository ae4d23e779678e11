"""Previews in any ASGI application: as middleware around it, or as an application of their own.

app = FastAPI()
app.add_middleware(PreviewMiddleware, env=atoll.connect())
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from atoll.errors import SandboxError
from atoll.sdk._async import previews
from atoll.sdk._async.previews import Visit
from atoll.sdk._async.service import ServiceResponse
from atoll.sdk._websocket import WebSocketRefusedError
from atoll.workers import websocket
from atoll.workers.http import Headers, Response
from atoll.workers.preview import end_to_end

_OF_THE_SERVER = {"date", "server"}
"""Fields that ASGI servers put before those of the application, also where it has its own."""


class PreviewMiddleware:
    """Answers requests for previews; hands all others to *app*.

    Args:
        app: an ASGI application.
        env: an engine (`atoll.connect`), a namespace, or a mapping of names to namespaces: the
            sandboxes that can be visited.
    """

    def __init__(self, app: Any, env: Any) -> None:
        self._app = app
        self._env = env

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one ASGI connection."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        visit = _visit(scope)
        if not visit.is_preview:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(visit, scope, receive, send)
        else:
            await self._http(visit, receive, send)

    async def _websocket(self, visit: Visit, scope: Any, receive: Any, send: Any) -> None:
        await receive()  # websocket.connect
        try:
            service = await previews.connect(visit, self._env)
        except WebSocketRefusedError as error:
            answer = Response(error.body, error.status, Headers(_passed_on(error.fields)))
            await websocket.refuse(answer, scope, send)
            return
        except SandboxError as error:
            await websocket.refuse(_failure(error), scope, send)
            return
        await websocket.relay(service, receive, send)

    async def _http(self, visit: Visit, receive: Any, send: Any) -> None:
        body = _Body(receive, visit)
        work = asyncio.create_task(self._answer(visit._replace(body=body.read()), send))
        gone = asyncio.create_task(body.disconnected())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.wait({work, gone})
        if not work.cancelled():
            work.result()

    async def _answer(self, visit: Visit, send: Any) -> None:
        try:
            found = await previews.answer(visit, self._env)
        except SandboxError as error:
            answer = _failure(error)
            await _start(send, answer.status, answer.headers.multi_items())
            await send({"type": "http.response.body", "body": await answer.bytes()})
            return
        async with found:
            await _forward(found, send)


async def _forward(found: ServiceResponse, send: Any) -> None:
    await _start(send, found.status, _passed_on(found.fields))
    async for chunk in found.body:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _passed_on(fields: Any) -> list[tuple[str, str]]:
    return [(name, value) for name, value in end_to_end(fields) if name not in _OF_THE_SERVER]


async def _start(send: Any, status: int, fields: Any) -> None:
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]
    await send({"type": "http.response.start", "status": status, "headers": raw})


def preview_app(env: Any) -> PreviewMiddleware:
    """Return an ASGI application that serves previews and nothing else."""
    return PreviewMiddleware(_nothing, env)


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        for _ in range(2):
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
    else:
        await _start(send, 404, [("content-length", "0")])
        await send({"type": "http.response.body", "body": b""})


class _Body:
    """A request's body, and after it the end of its connection."""

    def __init__(self, receive: Any, visit: Visit) -> None:
        self._receive = receive
        self._read = asyncio.Event()
        if not visit.has_body:
            self._read.set()

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the body."""
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ConnectionResetError("the visitor went before the request was complete")
            more = message.get("more_body", False)
            if not more:
                self._read.set()
            if message.get("body"):
                yield message["body"]

    async def disconnected(self) -> None:
        """Return when the visitor is gone; nobody may read the body meanwhile."""
        await self._read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _visit(scope: Any) -> Visit:
    fields = [(bytes(name), bytes(value)) for name, value in scope["headers"]]
    host = next((value.decode("latin-1") for name, value in fields if name == b"host"), "")
    query = scope.get("query_string", b"").decode("latin-1")
    path = scope.get("raw_path") or scope["path"].encode()
    client = scope.get("client")
    return Visit(
        method=scope.get("method", "GET"),
        target=path.decode("latin-1").partition("?")[0] + (f"?{query}" if query else ""),
        host=host,
        fields=fields,
        scheme="https" if scope.get("scheme") in {"https", "wss"} else "http",
        client=client[0] if client else None,
    )


def _failure(error: SandboxError) -> Response:
    return Response.from_json(error.to_wire(), status=error.http_status)
