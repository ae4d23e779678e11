"""An engine of the fake level, and a service that its sandboxes seem to run: both on this host."""

import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from integration.server.engines import EngineProcess

Application = Callable[[Any, Any, Any], Awaitable[None]]


async def service(scope: Any, receive: Any, send: Any) -> None:
    """Tell what was asked, echo WebSockets; an ASGI application."""
    if scope["type"] == "websocket":
        await _echo(scope, receive, send)
        return
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    headers = [[name.decode(), value.decode()] for name, value in scope["headers"]]
    told = {"method": scope["method"], "path": scope["path"], "headers": headers, "size": size,
            "query": scope["query_string"].decode()}  # fmt: skip
    start = {"type": "http.response.start", "status": 200}
    if scope["path"] == "/stream":
        await send(start | {"headers": [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]})
        for number in range(3):
            body = b"piece %d\n" % number
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body"})
        return
    body = json.dumps(told).encode()
    await send(start | {"headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    if scope["path"] == "/refused":
        await send({"type": "websocket.close"})
        return
    offered = scope["subprotocols"]
    await send({"type": "websocket.accept", "subprotocol": offered[-1] if offered else None})
    while (message := await receive())["type"] == "websocket.receive":
        if message.get("text") == "close":
            await send({"type": "websocket.close", "code": 4001, "reason": "as you wish"})
            return
        await send({"type": "websocket.send"} | {
            key: message[key] for key in ("text", "bytes") if message.get(key) is not None
        })  # fmt: skip


@contextmanager
def served(app: Application) -> Iterator[int]:
    """Serve *app* on loopback in a thread; yield its port."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_config=None, lifespan="off", ws="websockets-sansio",
        timeout_graceful_shutdown=1, proxy_headers=False,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            threading.Event().wait(0.01)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


class Here:
    """What tests use.

    Args:
        engine: a running engine.
        port: of `service`.
    """

    def __init__(self, engine: EngineProcess, port: int) -> None:
        self.url = f"unix://{engine.hello['socket']}"
        self.port = port


@contextmanager
def running(state_dir: Path) -> Iterator[Here]:
    """Run an engine and `service`."""
    engine = EngineProcess(state_dir)
    try:
        with served(service) as port:
            yield Here(engine, port)
        with engine.client() as client:
            for namespace in ("Sandbox", "Other"):
                found = client.get(f"/v2/namespaces/{namespace}/sandboxes").json()
                for one in found["sandboxes"]:
                    client.delete(f"/v2/namespaces/{namespace}/sandboxes/{one['id']}")
    finally:
        engine.end()
