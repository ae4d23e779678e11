"""The routes of the native API, from the table of operations.

One path may have several operations, by method. What an operation takes and answers is in
`wire.ops`; what it does is its handler's. Who may call, errors and records are the gate's.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from atoll.engine.objects import origin
from atoll.errors import RouteNotFoundError
from atoll.server import addressed, answer, auth, health, openapi, shapes
from atoll.server.auth import Listener
from atoll.server.bridge import routes as bridge
from atoll.server.gate import Desk, Gate, refusal
from atoll.server.handlers import BODILESS, HANDLERS, KNOWN_INSIDE, Handler
from atoll.server.paths import Paths
from atoll.server.replays import fingerprint
from atoll.wire import ids
from atoll.wire.objects import CALLS_HEADER
from atoll.wire.ops import Kind, Op

Endpoint = Callable[[Request], Awaitable[ASGIApp]]

_IN_QUERY = frozenset({"GET", "DELETE"})

_ONE_ANSWER = frozenset({Kind.UNARY, Kind.UPLOAD})
"""Kinds whose answer is one JSON value, which is kept under the idempotency key."""


def application(desk: Desk, listener: Listener) -> ASGIApp:
    """Return the application of one listener.

    Args:
        desk: what all listeners share.
        listener: where its requests come in.
    """
    resources: dict[str, _Resource] = defaultdict(_Resource)
    for op, handler in HANDLERS.items():
        resources[op.path].methods[op.method] = _endpoint(desk, op, handler)
    for path, endpoint in (health.endpoints(desk) | openapi.endpoints()).items():
        resources[path].methods["GET"] = endpoint
    paths: Paths[_Resource] = Paths()
    for path, resource in resources.items():
        paths.add(path, resource)
    # The bare router: the application class would answer faults itself, before they get here.
    others = Router(bridge.routes(desk.engine), redirect_slashes=False, default=_no_route)
    return Gate(_Routes(paths, others), desk, listener)


class _Routes:
    """The native API's paths, and where all others go. An ASGI application."""

    def __init__(self, paths: "Paths[_Resource]", others: ASGIApp) -> None:
        self._paths = paths
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._paths.find(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._others(scope, receive, send)
        else:
            scope["path_params"] = found.params
            await found.target(scope, receive, send)


class _Resource:
    """What one path answers, by method. An ASGI application."""

    def __init__(self) -> None:
        self.methods: dict[str, Endpoint] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self.methods.get(scope["method"])
        if endpoint is None:
            response: ASGIApp = self._not_allowed(scope)
        else:
            response = await endpoint(Request(scope, receive, send))
        await response(scope, receive, send)

    def _not_allowed(self, scope: Scope) -> Response:
        allowed = ", ".join(sorted(self.methods))
        error = RouteNotFoundError(
            f"{scope['path']} does not take {scope['method']}", context={"allow": allowed}
        )
        error.wire_status = 405
        return refusal(error, scope["request_id"], {"allow": allowed})


def _endpoint(desk: Desk, op: Op[Any, Any], handler: Handler) -> Endpoint:
    async def endpoint(request: Request) -> ASGIApp:
        call = request.scope["call"]
        call.begin(op, dict(request.path_params), resumable=_resumable(op, request))
        auth.check(call.caller, op, request.path_params.get("namespace"))
        origin.note(request.headers.get(CALLS_HEADER))
        await addressed.note_life(desk.engine, request)
        wanted = await _body(desk, op, request)
        key = request.headers.get("idempotency-key") if op.mutates else None
        if key is not None:
            ids.check_operation_id(key)
        if key and op.kind in _ONE_ANSWER and op not in KNOWN_INSIDE:
            body = await desk.replays.once(
                (call.caller.id, key),
                _fingerprint(op, request, wanted),
                lambda: _answer(handler(desk.engine, request, wanted)),
            )
            return Response(body, media_type=shapes.JSON)
        work = handler(desk.engine, request, wanted)
        result = await (_attended(request, work) if op.waits else work)
        if isinstance(result, msgspec.Struct):
            return Response(msgspec.json.encode(result), media_type=shapes.JSON)
        return cast("ASGIApp", result)

    return endpoint


def _fingerprint(op: Op[Any, Any], request: Request, wanted: Any) -> bytes:
    """Return what tells the call from others; of a body that is passed on, its length."""
    url = request.url.path if op.kind is Kind.UNARY else f"{request.url.path}?{request.url.query}"
    length = request.headers.get("content-length", "") if op.kind is Kind.UPLOAD else ""
    return fingerprint(op.name.encode(), url.encode(), msgspec.json.encode(wanted), length.encode())


def _resumable(op: Op[Any, Any], request: Request) -> bool:
    """Whether the caller reads a stream, which it may go on reading from the next engine."""
    headers = request.headers
    if op.kind is not Kind.STREAM or shapes.JSON in headers.get("accept", shapes.JSON):
        return False
    return not op.mutates or "idempotency-key" in headers  # who made no key knows no operation


async def _attended(request: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """Wait as long as the caller does and the engine runs."""
    try:
        with request.scope["call"].waiting():
            return await answer.attended(request.receive, work)
    finally:
        work.close()  # where it never began


async def _answer(work: Awaitable[Any]) -> bytes:
    return msgspec.json.encode(await work)


async def _body(desk: Desk, op: Op[Any, Any], request: Request) -> Any:
    if op in BODILESS:
        return None
    if op.method in _IN_QUERY:
        return answer.decode_query(request, op.request)
    body = await answer.read_json(request, desk.engine.settings.server.max_body)
    return answer.decode(body, op.request)


async def _no_route(scope: Scope, _receive: Receive, _send: Send) -> None:
    raise RouteNotFoundError(
        f"no route {scope['method']} {scope['path']}", context={"method": scope["method"]}
    )
