"""``proxy_to_sandbox``: the first line of every Worker's ``fetch``.

A request whose host name is a preview's is answered here and never reaches the Worker's own
code. No port can be exposed by this version, so every token is a wrong one and answers 404.
"""

from typing import Any

from atoll.errors import InvalidTokenError
from atoll.wire import preview
from atoll.workers.http import Request, Response


async def proxy_to_sandbox(request: Request, env: Any) -> Response | None:  # noqa: ARG001 - part of the call's form
    """Answer *request* if its host name is a preview's; else return None.

    Args:
        request: the request as the Worker got it.
        env: the Worker's ``env``; its namespaces say which sandboxes may be previewed.
    """
    target = preview.parse(request.url.hostname)
    if target is None:
        return None
    error = InvalidTokenError(context={"port": target.port, "sandbox": target.sandbox_id})
    return Response.from_json(error.to_wire(), status=error.http_status)
