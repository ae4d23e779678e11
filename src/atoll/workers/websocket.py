"""A visitor's WebSocket on one side (ASGI), a service's on the other: messages both ways."""

import asyncio
from contextlib import suppress
from typing import Any

from atoll.errors import SandboxError
from atoll.sdk._async.websocket import WebSocket
from atoll.workers.http import Response

_UNSENDABLE = {1005, 1006, 1015}
"""Codes that tell of a close without a code; they are never sent."""

CLOSE_SECONDS = 10.0
"""How long a service has to answer the close of a visitor who is gone; then it is cut."""


async def relay(service: WebSocket, receive: Any, send: Any) -> None:
    """Accept the visitor as the service did, then carry messages until one side closes."""
    cookies = [(b"set-cookie", service.headers["set-cookie"].encode("latin-1"))
               if "set-cookie" in service.headers else None]  # fmt: skip
    await send({
        "type": "websocket.accept",
        "subprotocol": service.subprotocol,
        "headers": [cookie for cookie in cookies if cookie],
    })  # fmt: skip
    to_visitor = asyncio.create_task(_to_visitor(service, send))
    to_service = asyncio.create_task(_to_service(service, receive))
    ways = {to_visitor, to_service}
    how: tuple[Any, ...] = ()
    try:
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        how = to_service.result() if to_service in done else ()
    finally:
        for way in ways:
            way.cancel()
        await asyncio.wait(ways)
        await _close(service, *how)
    for way in done:
        way.result()


async def _close(service: WebSocket, *how: Any) -> None:
    with suppress(SandboxError, TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await service.close(*how)


async def _to_visitor(service: WebSocket, send: Any) -> None:
    code, reason = 1011, ""
    with suppress(SandboxError):  # the service is gone: 1011
        async for message in service:
            key = "text" if isinstance(message, str) else "bytes"
            await send({"type": "websocket.send", key: message})
        if service.close_code not in _UNSENDABLE:
            code, reason = service.close_code or 1000, service.close_reason
        elif service.close_code == 1005:
            code = 1000
    await send({"type": "websocket.close", "code": code, "reason": reason})


async def _to_service(service: WebSocket, receive: Any) -> tuple[int, str]:
    """Carry messages; return the code and reason to close with, once the visitor has closed."""
    while (message := await receive())["type"] == "websocket.receive":
        text = message.get("text")
        with suppress(SandboxError):  # `_to_visitor` tells
            await service.send(message.get("bytes") or b"" if text is None else text)
    code = message.get("code") or 1000
    return 1000 if code in _UNSENDABLE else code, message.get("reason") or ""


async def refuse(response: Response, scope: Any, send: Any) -> None:
    """Answer a visitor who wants a WebSocket with *response* instead, where the server can."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": str(response.status)})
        return
    fields = [(name.encode("latin-1"), value.encode("latin-1"))
              for name, value in response.headers.multi_items()]  # fmt: skip
    body = await response.bytes()
    start = {"status": response.status, "headers": fields}
    await send({"type": "websocket.http.response.start", **start})
    await send({"type": "websocket.http.response.body", "body": body, "more_body": False})
