"""When an answer was made, said once: by the service that made it, else by the Worker's server.

uvicorn puts its own field before those of the application, also where these have one. So it is
told to say none, and this does.
"""

import time
from email.utils import formatdate
from typing import Any

_STARTS = {"http.response.start", "websocket.http.response.start"}


class Dated:
    """Gives answers of *app* a ``date`` that have none.

    Args:
        app: an ASGI application.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one ASGI connection."""

        async def dated(message: Any) -> None:
            await send(_dated(message) if message["type"] in _STARTS else message)

        await self._app(scope, receive, dated)


def _dated(message: Any) -> Any:
    fields = list(message.get("headers") or ())
    if all(bytes(name).lower() != b"date" for name, _ in fields):
        fields.append((b"date", formatdate(time.time(), usegmt=True).encode()))
    return {**message, "headers": fields}
