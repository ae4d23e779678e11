"""Previews by way of a program: a visitor's request is handed to the engine as it came.

The engine decides whether the address is a preview's that forwards, and what its visitor needs; its
refusals come back as answers. It takes the program's word for the visitor's address and scheme.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from atoll.errors import ValidationFailedError
from atoll.sdk import _ports
from atoll.sdk._async.environment import Environment, Namespace
from atoll.sdk._async.raw import RawConnection
from atoll.sdk._async.service import ServiceResponse, ask
from atoll.sdk._async.transport import Transport
from atoll.sdk._async.websocket import WebSocket
from atoll.sdk._ports import Fields
from atoll.wire import ops, preview
from atoll.wire.ports import ConnectPreviews


class Visit(NamedTuple):
    """A visitor's request. `host` is its ``Host``; `client` the visitor's address, if known."""

    method: str
    target: str
    host: str
    fields: Fields
    body: Any = None
    scheme: str = "http"
    client: str | None = None

    @property
    def is_preview(self) -> bool:
        """Whether the host name is a preview's."""
        return preview.parse(_ports.without_port(self.host)) is not None

    @property
    def has_body(self) -> bool:
        """Whether a body follows the head."""
        return _ports.has_body(self.fields)


async def proxy_to_sandbox(request: Any, env: Any) -> ServiceResponse | WebSocket | None:
    """Answer *request* if its host name is a preview's; None: it is not, go on.

    Args:
        request: a request with `method`, `url`, `headers`, and its body as `body` or `stream()`.
        env: an engine, one namespace, or a mapping of bindings to namespaces; only their sandboxes
            can be visited.
    """
    found = _ports.wanted(request, None, None, None, take_body=False)
    fields = _ports.encoded(found)
    client = getattr(request, "client", None)
    visit = Visit(
        found.method,
        found.target,
        _ports.host_of(request, fields),
        fields,
        scheme=_ports.scheme_of(request),
        client=getattr(client, "host", client),
    )
    if not visit.is_preview:
        return None
    if _ports.wants_websocket(fields):
        return await connect(visit, env)
    return await answer(visit._replace(body=_ports.body_of(request)), env)


async def answer(visit: Visit, env: Any) -> ServiceResponse:
    """Return the answer to a visitor's request, also where that is a refusal."""
    connection = await _open(env)
    fields = _ports.visit_fields(visit.fields, visit.host, visit.client, visit.scheme)
    body = visit.body if visit.has_body else None
    return await ask(connection, visit.method, visit.target, fields, body, None)


async def connect(visit: Visit, env: Any) -> WebSocket:
    """Return the WebSocket that a visitor asks for.

    Raises:
        WebSocketRefusedError: there is none to be had; it has the answer.
    """
    connection = await _open(env)
    fields = _ports.visit_fields(visit.fields, visit.host, visit.client, visit.scheme)
    return await WebSocket.open(
        connection,
        visit.target,
        _ports.without_handshake(fields),
        _ports.subprotocols(visit.fields),
    )


async def _open(env: Any) -> RawConnection:
    via, names = _reach(env)
    request = ConnectPreviews(namespaces=",".join(names) if names else None)
    return await RawConnection.open(via, ops.CONNECT_PREVIEWS, {}, request)


def _reach(env: Any) -> tuple[Transport, list[str]]:
    """Return the engine of *env*, and the namespaces that may be visited (none: all)."""
    if isinstance(env, Environment):
        return env.transport, []
    if isinstance(env, Namespace):
        return env.transport, [env.name]
    values = env.values() if isinstance(env, Mapping) else [env[name] for name in env or ()]
    found = [value for value in values if isinstance(value, Namespace)]
    if not found:
        raise ValidationFailedError(
            "env has no namespace of sandboxes",
            context={"field": "env"},
            suggestion="give an engine (atoll.connect()), env.Sandbox, or the env of a Worker",
        )
    return found[0].transport, sorted({namespace.name for namespace in found})
