"""``proxy_to_sandbox``: the first line of every Worker's ``fetch``.

A request whose host name is a preview's is answered here and never reaches the Worker's own code;
everything about it is the engine's to decide, see `atoll.sdk._async.previews`.
"""

from typing import Any

from atoll.sdk._async import previews
from atoll.sdk._async.service import ServiceResponse
from atoll.sdk._async.websocket import WebSocket
from atoll.sdk._websocket import WebSocketRefusedError
from atoll.workers.http import Headers, Response

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Fields of an answer that are about the connection it came by; trailers are not carried further."""


async def proxy_to_sandbox(request: Any, env: Any) -> Response | WebSocket | None:
    """Answer *request* if its host name is a preview's; else return None.

    Args:
        request: the request as the Worker got it, or that of a web framework.
        env: the Worker's ``env``, whose namespaces say which sandboxes may be visited; or an
            engine (`atoll.connect`), or one namespace.

    Raises:
        ValidationFailedError: *env* has no namespace.
        EngineUnreachableError: there is no engine.
    """
    try:
        found = await previews.proxy_to_sandbox(request, env)
    except WebSocketRefusedError as refused:
        return Response(refused.body, refused.status, Headers(end_to_end(refused.fields)))
    return response(found) if isinstance(found, ServiceResponse) else found


def response(found: ServiceResponse) -> Response:
    """Return the answer of a service as a Worker's answer; its body is passed on as it comes."""
    return Response(found.body, found.status, Headers(end_to_end(found.fields)))


def end_to_end(fields: Any) -> list[tuple[str, str]]:
    """Return the *fields* of an answer that are for the visitor."""
    fields = list(fields)
    named = ",".join(value for name, value in fields if name.lower() == "connection").split(",")
    left_out = HOP_BY_HOP | {name.strip().lower() for name in named}
    return [(name, value) for name, value in fields if name.lower() not in left_out]
