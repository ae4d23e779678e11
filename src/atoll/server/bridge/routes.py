"""The bridge's table: method and path → what it does, what a key needs, how its failures are named.

The routes are mounted beside those of the native API, behind the same gate: keys, limits, request
ids and the audit record are the gate's.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NamedTuple

from starlette.requests import HTTPConnection, Request
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from atoll.engine.engine import Engine
from atoll.errors import RouteNotFoundError
from atoll.server import auth
from atoll.server.bridge import (
    exec,
    failures,
    files,
    mounts,
    openapi,
    pool,
    pty,
    requests,
    sandboxes,
    tunnels,
)
from atoll.server.bridge.failures import ANY, POOL, PREFIX, READ, TRANSPORT, WRITE, Failure
from atoll.server.underway import Call
from atoll.wire import keys
from atoll.wire.base import Done, Empty
from atoll.wire.ops import Kind, Op

Handler = Callable[[Engine, Request], Awaitable[ASGIApp]]


class Entry(NamedTuple):
    """One route."""

    op: Op[Any, Any]
    handler: Handler
    failure: Failure


def _entry(
    method: str,
    path: str,
    handler: Handler,
    failure: Failure = ANY,
    scope: keys.Scope = keys.Scope.RUN,
    kind: Kind = Kind.UNARY,
) -> Entry:
    name = f"bridge.{handler.__module__.rpartition('.')[2]}.{handler.__name__}"
    op = Op(name, method, PREFIX + path, Empty, Done, kind=kind, scope=scope, shared=True)
    return Entry(op, handler, failure)


def _engine(method: str, path: str, handler: Handler, scope: keys.Scope) -> Entry:
    """Return the entry of a route that is about the engine: not for keys of one namespace."""
    entry = _entry(method, path, handler, Failure("pool error", POOL), scope)
    return entry._replace(op=replace(entry.op, shared=False))


_READ = keys.Scope.READ
_BOX = "/sandbox/{id}"
_FILE = _BOX + "/file/{path:path}"
_SESSION = Failure("session failed", "session_error")

PTY = Entry(
    Op("bridge.pty", "WEBSOCKET", PREFIX + _BOX + "/pty", Empty, Done, Kind.STREAM, shared=True),
    pty.without_upgrade,
    Failure("terminal failed", TRANSPORT),
)
"""The upgraded form: unlike a GET it changes something, and the record of calls says so."""

TABLE: tuple[Entry, ...] = (
    _entry("POST", "/sandbox", sandboxes.create),
    _entry("DELETE", _BOX, sandboxes.delete, Failure("destroy failed", POOL)),
    _entry("GET", _BOX + "/running", sandboxes.running, scope=_READ),
    _entry("POST", _BOX + "/exec", exec.run, Failure("exec failed", TRANSPORT), kind=Kind.STREAM),
    _entry("GET", _BOX + "/pty", pty.without_upgrade),
    _entry("GET", _FILE, files.read, Failure("read failed", TRANSPORT, missing=True), _READ,
           Kind.DOWNLOAD),
    _entry("PUT", _FILE, files.write, Failure("write failed", WRITE), kind=Kind.UPLOAD),
    _entry("POST", _BOX + "/persist", files.persist, Failure("persist failed", READ), _READ,
           Kind.DOWNLOAD),
    _entry("POST", _BOX + "/hydrate", files.hydrate, Failure("hydrate failed", WRITE),
           kind=Kind.UPLOAD),
    _entry("POST", _BOX + "/mount", mounts.mount, Failure("mount failed", "mount_error")),
    _entry("POST", _BOX + "/unmount", mounts.unmount, Failure("unmount failed", "unmount_error")),
    _entry("POST", _BOX + "/session", sandboxes.create_session, _SESSION),
    _entry("DELETE", _BOX + "/session/{session}", sandboxes.delete_session, _SESSION),
    _entry("POST", _BOX + "/tunnel/{port}", tunnels.open, Failure("tunnel failed", "tunnel_error")),
    _entry("DELETE", _BOX + "/tunnel/{port}", tunnels.close,
           Failure("tunnel failed", "tunnel_error")),
    _engine("GET", "/pool/stats", pool.stats, _READ),
    _engine("POST", "/pool/prime", pool.prime, keys.Scope.ADMIN),
    _engine("POST", "/pool/shutdown-prewarmed", pool.shutdown_prewarmed, keys.Scope.ADMIN),
    _entry("GET", "/openapi.json", openapi.document, scope=_READ),
    _entry("GET", "/openapi", openapi.page, scope=_READ),
    _entry("GET", "/openapi.html", openapi.page, scope=_READ),
)  # fmt: skip


def routes(engine: Engine) -> list[BaseRoute]:
    """Return the routes of the bridge."""
    resources: dict[str, _Resource] = defaultdict(lambda: _Resource(engine))
    for entry in TABLE:
        resources[entry.op.path].entries[entry.op.method] = entry
    return [
        WebSocketRoute(PTY.op.path, _Upgraded(engine)),
        *(Route(path, resource) for path, resource in resources.items()),
    ]


class _Resource:
    """What one path answers, by method. An ASGI application."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.entries: dict[str, Entry] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        entry = self.entries.get(scope["method"])
        if entry is None:
            raise RouteNotFoundError(f"no route {scope['method']} {scope['path']}")
        request = Request(scope, receive, send)
        _begin(request, entry)
        response = await entry.handler(self._engine, request)
        await response(scope, receive, send)


class _Upgraded:
    """A terminal's WebSocket. An ASGI application."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        websocket = WebSocket(scope, receive, send)
        _begin(websocket, PTY)
        await pty.serve(self._engine, websocket)


def _begin(connection: HTTPConnection, entry: Entry) -> None:
    """Say what the request is, and refuse it where the key does not allow that."""
    failures.expect(connection.scope, entry.failure)
    call: Call = connection.scope["call"]
    target = {"namespace": requests.namespace(connection)}
    target |= {name: value for name, value in connection.path_params.items() if name != "path"}
    call.begin(entry.op, target, resumable=entry is PTY)  # a terminal never ends by itself
    auth.check(call.caller, entry.op, None)
