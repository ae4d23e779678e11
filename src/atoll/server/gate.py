"""The outermost application: request id, caller, limits, errors, the audit record.

Handlers raise typed errors; here they become envelopes. Anything else is a fault of the engine:
its traceback goes to the log under the request's id, the caller gets `INTERNAL_ERROR` and the id.
Every line of the log that a request causes has its id, by a context variable.
"""

import math
import re
import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog
from starlette.datastructures import Headers, QueryParams
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from atoll.engine.engine import Engine
from atoll.engine.link import losses
from atoll.engine.link.link import LinkError
from atoll.errors import (
    InternalError,
    SandboxError,
    UnauthorizedError,
    VersionMismatchError,
)
from atoll.host.budget import Budget
from atoll.server import cors, forwarded, shapes
from atoll.server.auth import Auth, Listener
from atoll.server.bridge import failures as bridge
from atoll.server.limits import Limits
from atoll.server.replays import Replays
from atoll.server.underway import Call, Underway
from atoll.wire import keys
from atoll.wire.keys import AuditRecord
from atoll.wire.ops import API_HEADER, API_VERSION, Op

log = structlog.get_logger(__name__)

OPEN = frozenset({"/health", "/healthz", "/readyz"})
"""Paths that anybody may ask."""

BY_TOKEN = frozenset({"/v2/openapi.json", "/v1/openapi.json", "/v1/openapi", "/v1/openapi.html"})
"""Paths that take a key as ``?token=`` too: a browser has no other way to open a document."""

_HEADS = frozenset({"http.response.start", "websocket.http.response.start", "websocket.accept"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Desk:
    """What all listeners of one engine share.

    Args:
        engine: an open engine.
    """

    def __init__(self, engine: Engine) -> None:
        settings = engine.settings.server
        self.engine = engine
        self.auth = Auth(engine.keys, settings.api_key)
        self.replays = Replays()
        self.limits = Limits(settings)
        self.budget = Budget(settings.max_bodies)
        self.underway = Underway()
        self.proxies = forwarded.networks(settings.trusted_proxies)


class Gate:
    """Wraps the routes of one listener. An ASGI application."""

    def __init__(self, inner: ASGIApp, desk: Desk, listener: Listener) -> None:
        self._inner = inner
        self._desk = desk
        self._listener = listener
        self._origins = frozenset(desk.engine.settings.server.cors_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; whatever is raised inside becomes an answer here."""
        if scope["type"] == "websocket":
            scope["method"] = "GET"  # what an upgrade is
        elif scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        scope["request_id"] = id
        extra = {"x-request-id": id} | cors.headers(headers.getlist("origin"), self._origins)
        visit = _Visit(self._desk, scope, send, extra)
        with structlog.contextvars.bound_contextvars(request_id=id):
            if cors.is_preflight(scope["method"], headers) and self._origins:
                await Response(status_code=204)(scope, receive, visit.send)
                return
            await self._answer(scope, receive, visit, headers)

    async def _answer(
        self, scope: Scope, receive: Receive, visit: "_Visit", headers: Headers
    ) -> None:
        try:
            if scope["path"] in OPEN:
                await self._inner(scope, receive, visit.send)
            else:
                await self._admitted(scope, receive, visit, headers)
        except ClientDisconnect:
            log.info("caller went away", path=scope["path"])
        except Exception as error:
            if visit.started:
                if visit.cut:
                    log.info("answer cut", path=scope["path"], reason=str(error))
                elif isinstance(error, LinkError):
                    log.warning("answer cut", path=scope["path"], reason=str(error))
                else:
                    log.error("answer cut", path=scope["path"], exc_info=error)
                raise
            await visit.refuse(_typed(error, scope), receive)
        finally:
            visit.end()

    async def _admitted(
        self, scope: Scope, receive: Receive, visit: "_Visit", headers: Headers
    ) -> None:
        _check_version(headers)
        desk, settings = self._desk, self._desk.engine.settings.server
        token = None
        if scope["path"] in BY_TOKEN:
            token = QueryParams(scope["query_string"]).get("token")
        peer = scope["client"][0] if scope.get("client") else None
        visit.client = forwarded.origin(peer, scope["scheme"], headers, desk.proxies).client
        caller = desk.auth.caller(headers, self._listener, token=token)
        call = Call(scope["request_id"], caller, desk.budget, settings.idle_timeout)
        scope["call"] = visit.call = call
        with desk.limits.entered(caller), desk.underway.entered(call):
            await self._inner(scope, receive, visit.send)


class _Visit:
    """One request at the gate: adds to its answer's head, notes its outcome."""

    def __init__(self, desk: Desk, scope: Scope, send: Send, extra: Mapping[str, str]) -> None:
        self._desk = desk
        self._scope = scope
        self._send = send
        self._extra = [(name.encode(), value.encode("latin-1")) for name, value in extra.items()]
        self._began = time.monotonic()
        self.call: Call | None = None
        self.client: str | None = None
        self.started = False

    @property
    def cut(self) -> bool:
        """Whether the request was ended from outside."""
        return self.call is not None and self.call.cut_by is not None

    async def send(self, message: Message) -> None:
        if message["type"] in _HEADS:
            self.started = True
            self._record(message.get("status", 101))
            message["headers"] = [*message.get("headers", []), *self._extra]
        await self._send(message)

    async def refuse(self, error: SandboxError, receive: Receive) -> None:
        """Answer with *error*."""
        if self.call:
            self.call.code = error.wire_code
        if bridge.serves(self._scope):
            answer = bridge.refusal(error, self._scope, hints(error))
        else:
            answer = refusal(error, self._scope["request_id"])
        await answer(self._scope, receive, self.send)

    def end(self) -> None:
        """Note a request whose caller left before there was an answer."""
        if not self.started:
            self._record(0)

    def _record(self, status: int) -> None:
        call, took = self.call, time.monotonic() - self._began
        log.debug("answered", method=self._scope["method"], path=self._scope["path"],
                  status=status, seconds=round(took, 4), client=self.client)  # fmt: skip
        if call is None or call.op is None or not _is_recorded(call.op) or status == 429:
            return
        self._desk.engine.audit.add(
            AuditRecord(
                number=0,
                at=datetime.now(UTC),
                caller=call.caller.id,
                operation=call.op.name,
                target=call.target,
                status=status,
                code=call.code,
                request_id=call.id,
                client=self.client,
            )
        )


def _is_recorded(op: Op[Any, Any]) -> bool:
    """Whether there is a record of the call: also of a terminal, which begins with a GET."""
    return op.mutates or op.scope is keys.Scope.RUN


def _check_version(headers: Headers) -> None:
    wanted = headers.get(API_HEADER)
    if wanted is not None and wanted != str(API_VERSION):
        raise VersionMismatchError(
            f"this engine speaks API {API_VERSION}, the client wants {wanted[:20]}",
            context={"engine": API_VERSION},
            suggestion="install client and engine of the same version",
        )


def _typed(error: Exception, scope: Scope) -> SandboxError:
    if isinstance(error, SandboxError):
        return error
    if isinstance(error, LinkError | msgspec.MsgspecError):
        log.warning("agent at fault", path=scope["path"], reason=str(error))
        return losses.improper(str(error))
    log.error("request failed", path=scope["path"], exc_info=error)
    return InternalError("the engine failed; its log has the details under this request id")


def refusal(error: SandboxError, id: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return the answer that tells of *error*."""
    found = {**(headers or {}), **hints(error)}
    body = msgspec.json.encode(shapes.envelope(error, id), enc_hook=str)
    return Response(body, error.wire_status, found, media_type=shapes.JSON)


def hints(error: SandboxError) -> dict[str, str]:
    """Return the headers that say what a refused caller can do."""
    found = {}
    if error.retry_after is not None:
        found["retry-after"] = str(max(1, math.ceil(error.retry_after)))
    if isinstance(error, UnauthorizedError):
        found["www-authenticate"] = "Bearer"
    return found
