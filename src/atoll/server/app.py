"""The ASGI application: routes from the table of operations, one place for errors and ids.

Handlers raise typed errors; here they become envelopes. Anything else is a fault of the engine:
its traceback goes to the log under the request's id, the caller gets `INTERNAL_ERROR` and the id.
"""

import re
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
import structlog
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from atoll.engine.engine import Engine
from atoll.engine.link import LinkError
from atoll.errors import InternalError, RouteNotFoundError, SandboxError
from atoll.server import answer, auth, shapes
from atoll.server.auth import Auth
from atoll.server.handlers import BODILESS, HANDLERS, KNOWN_INSIDE, Handler
from atoll.server.replays import Replays, fingerprint
from atoll.wire import ids
from atoll.wire.ops import Kind, Op

log = structlog.get_logger(__name__)

Endpoint = Callable[[Request], Awaitable[ASGIApp]]

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_IN_QUERY = frozenset({"GET", "DELETE"})


def application(engine: Engine, keys: Auth, replays: Replays, *, unix: bool) -> ASGIApp:
    """Return the application of one listener.

    Args:
        keys: who may call.
        replays: answers by idempotency key, shared by all listeners.
        unix: whether the listener is the unix socket.
    """
    resources: dict[str, _Resource] = defaultdict(_Resource)
    for op, handler in HANDLERS.items():
        resources[op.path].methods[op.method] = _endpoint(engine, op, handler, replays)
    resources["/health"].methods["GET"] = _health
    routes = [Route(path, resource) for path, resource in resources.items()]
    # The bare router: the application class would answer faults itself, before they get here.
    return _Gate(Router(routes, redirect_slashes=False, default=_no_route), keys, unix)


class _Resource:
    """What one path answers, by method. An ASGI application."""

    def __init__(self) -> None:
        self.methods: dict[str, Endpoint] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self.methods.get(scope["method"])
        if endpoint is None:
            await _no_route(scope, receive, send)
            return
        response = await endpoint(Request(scope, receive, send))
        await response(scope, receive, send)


def _endpoint(engine: Engine, op: Op[Any, Any], handler: Handler, replays: Replays) -> Endpoint:
    async def endpoint(request: Request) -> ASGIApp:
        caller = request.scope["caller"]
        auth.check(caller, op.scope, request.path_params.get("namespace"))
        wanted = await _body(engine, op, request)
        key = request.headers.get("idempotency-key")
        if key and op.mutates and op.kind is Kind.UNARY and op not in KNOWN_INSIDE:
            body = await replays.once(
                (caller, ids.check_operation_id(key)),
                fingerprint(
                    op.name.encode(), request.url.path.encode(), msgspec.json.encode(wanted)
                ),
                lambda: _answer(handler(engine, request, wanted)),
            )
            return Response(body, media_type=shapes.JSON)
        result = await handler(engine, request, wanted)
        if isinstance(result, msgspec.Struct):
            return Response(msgspec.json.encode(result), media_type=shapes.JSON)
        return cast("ASGIApp", result)

    return endpoint


async def _answer(work: Awaitable[Any]) -> bytes:
    return msgspec.json.encode(await work)


async def _body(engine: Engine, op: Op[Any, Any], request: Request) -> Any:
    if op in BODILESS:
        return None
    if op.method in _IN_QUERY:
        return answer.decode_query(request, op.request)
    body = await answer.read_json(request, engine.settings.server.max_body)
    return answer.decode(body, op.request)


async def _health(_: Request) -> JSONResponse:
    return JSONResponse({"ok": True})


async def _no_route(scope: Scope, _receive: Receive, _send: Send) -> None:
    raise RouteNotFoundError(
        f"no route {scope['method']} {scope['path']}", context={"method": scope["method"]}
    )


class _Gate:
    """Outermost: request id, caller, errors."""

    def __init__(self, inner: ASGIApp, keys: Auth, unix: bool) -> None:
        self._inner = inner
        self._keys = keys
        self._unix = unix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; whatever is raised inside becomes an answer here."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        scope["request_id"] = id
        outgoing = _Outgoing(send, id)
        try:
            if scope["path"] != "/health":
                scope["caller"] = self._keys.caller(headers, unix=self._unix)
            await self._inner(scope, receive, outgoing.send)
        except ClientDisconnect:
            log.info("caller went away", request_id=id, path=scope["path"])
        except Exception as error:
            if outgoing.started:
                log.error("answer cut", request_id=id, path=scope["path"], exc_info=error)
                raise
            await _refusal(_typed(error, id, scope), id)(scope, receive, send)


class _Outgoing:
    """Adds the request id to the answer's head and remembers that it was sent."""

    def __init__(self, send: Send, id: str) -> None:
        self._send = send
        self._id = id
        self.started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            message.setdefault("headers", [])
            message["headers"] = [*message["headers"], (b"x-request-id", self._id.encode())]
        await self._send(message)


def _typed(error: Exception, id: str, scope: Scope) -> SandboxError:
    if isinstance(error, SandboxError):
        return error
    if isinstance(error, LinkError | msgspec.MsgspecError):
        log.warning("agent at fault", request_id=id, path=scope["path"], reason=str(error))
        return InternalError("the sandbox's agent gave no proper answer")
    log.error("request failed", request_id=id, path=scope["path"], exc_info=error)
    return InternalError("the engine failed; its log has the details under this request id")


def _refusal(error: SandboxError, id: str) -> Response:
    headers = {"x-request-id": id}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, round(error.retry_after)))
    body = msgspec.json.encode(shapes.envelope(error, id), enc_hook=str)
    return Response(body, error.wire_status, headers, media_type="application/json")
