"""ASGI on one side, the user's ``fetch`` on the other.

An unhandled error answers 500: with a request id in production, with the traceback in `dev`.
A body that fails after the status was sent ends the connection, so that a client never takes
half an answer for a whole one.
"""

import logging
import traceback
import uuid
from collections.abc import AsyncIterator
from typing import Any

from atoll.errors import SandboxError
from atoll.sdk._async.service import ServiceResponse
from atoll.sdk._async.websocket import WebSocket
from atoll.workers import preview, websocket
from atoll.workers.entry import Context, Fetch
from atoll.workers.http import Headers, Request, Response

_log = logging.getLogger("atoll.worker")

_NO_BODY = {204, 205, 304}


class WorkerApp:
    """ASGI application around one `Fetch`."""

    def __init__(self, fetch: Fetch, ctx: Context, *, dev: bool) -> None:
        self._fetch = fetch
        self._ctx = ctx
        self._dev = dev

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await self._websocket(scope, receive, send)
        else:
            response = await self._answer(_request(scope, receive))
            if isinstance(response, WebSocket):
                await response.close()
                response = self._failure(TypeError("the request was not for a WebSocket"))
            await _send(response, scope["method"], send)

    async def _websocket(self, scope: Any, receive: Any, send: Any) -> None:
        response = await self._answer(_request(scope, receive))
        if isinstance(response, WebSocket):
            await websocket.relay(response, receive, send)
        else:
            await websocket.refuse(response, scope, send)

    async def _answer(self, request: Request) -> Response | WebSocket:
        try:
            response: object = await self._fetch(request)
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises is an answer
            return self._failure(error)
        if isinstance(response, ServiceResponse):
            return preview.response(response)
        if not isinstance(response, Response | WebSocket):
            kind = type(response).__name__
            return self._failure(TypeError(f"fetch returned {kind}, not a Response"))
        return response

    def _failure(self, error: Exception) -> Response:
        request_id = uuid.uuid4().hex
        _log.error("unhandled error, request %s", request_id, exc_info=error)
        if self._dev:
            return Response("".join(traceback.format_exception(error)), status=500)
        code = error.code if isinstance(error, SandboxError) else "INTERNAL_ERROR"
        body = {"code": code, "message": "the Worker failed", "requestId": request_id}
        return Response.from_json(body, status=500)

    async def _lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._ctx.finished()
        await send({"type": "lifespan.shutdown.complete"})


def _request(scope: Any, receive: Any) -> Request:
    headers = Headers((k.decode("latin-1"), v.decode("latin-1")) for k, v in scope["headers"])
    server = scope.get("server") or ("localhost", None)
    host = headers.get("host") or f"{server[0]}:{server[1]}"
    client = scope.get("client")
    path = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
    query = scope["query_string"].decode("latin-1")
    return Request(
        f"{scope['scheme'].replace('ws', 'http')}://{host}{path}{'?' if query else ''}{query}",
        method=scope.get("method", "GET"),
        headers=headers,
        body=None if scope["type"] == "websocket" else _body(receive),
        client=client[0] if client else None,
    )


async def _body(receive: Any) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionResetError("the client went before its request was complete")
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body"):
            return


async def _send(response: Response, method: str, send: Any) -> None:
    fields = [
        (name.encode("latin-1"), value.encode("latin-1"))
        for name, value in response.headers.multi_items()
    ]
    await send({"type": "http.response.start", "status": response.status, "headers": fields})
    if method != "HEAD" and response.status not in _NO_BODY:
        async for chunk in response.body:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
