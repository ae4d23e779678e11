"""Tunnels from the internet to a port: what a request may ask for."""

import re
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from atoll.engine.engine import Engine
from atoll.engine.ports.exposures import check_port
from atoll.errors import InvalidPortError, InvalidPortNumberError
from atoll.server.bridge import requests
from atoll.server.bridge.failures import invalid

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


async def open(engine: Engine, request: Request) -> Response:
    """Open a tunnel to a port."""
    port = checked_port(request.path_params["port"])
    name = checked_name(await requests.body(engine, request, dict[str, Any], optional=True))
    tunnel = await engine.tunnels.get(requests.sandbox(engine, request), port, name)
    return JSONResponse({**tunnel.to_dict(), "hostname": urlsplit(tunnel.url).hostname})


async def close(engine: Engine, request: Request) -> Response:
    """Close the tunnel to a port, if there is one."""
    port = checked_port(request.path_params["port"])
    await engine.tunnels.destroy(requests.sandbox(engine, request), port)
    return Response(status_code=204)


def checked_port(text: str) -> int:
    """Return the port; raise `ValidationFailedError` when a tunnel cannot have it."""
    try:
        return check_port(text)
    except (InvalidPortError, InvalidPortNumberError) as error:
        raise invalid("Invalid port") from error


def checked_name(body: dict[str, Any]) -> str | None:
    """Return the tunnel's name; raise `ValidationFailedError` when it is no DNS label."""
    name = body.get("name")
    if name is None:
        return None
    if not isinstance(name, str):
        raise invalid("name must be a string when provided")
    if not _LABEL.fullmatch(name):
        raise invalid("name must be a DNS label: a-z, 0-9 and '-', at most 63 characters")
    return name
