"""The bridge's own OpenAPI document, and a page of it for people."""

import html
from functools import cache
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

import atoll
from atoll.engine.engine import Engine
from atoll.server import shapes

_Content = dict[str, Any]


class Told(NamedTuple):
    """What the document says of one operation."""

    summary: str
    answer: str  # of status 200; empty: 204
    body: _Content | None = None
    query: tuple[str, ...] = ()
    session: bool = False


def _object(required: tuple[str, ...] = (), **properties: _Content) -> _Content:
    found: _Content = {"type": "object", "properties": properties}
    return found | ({"required": list(required)} if required else {})


_TEXT: _Content = {"type": "string"}
_FLAG: _Content = {"type": "boolean"}
_NUMBER: _Content = {"type": "number"}
_BINARY: _Content = {"type": "string", "format": "binary"}
_TEXTS: _Content = {"type": "array", "items": _TEXT}
_STREAM, _BYTES = shapes.SSE, "application/octet-stream"

_EXEC = _object(("argv",), argv=_TEXTS | {"minItems": 1}, timeout_ms=_NUMBER, cwd=_TEXT)
_OPTIONS = _object(
    endpoint=_TEXT,
    provider=_TEXT,
    readOnly=_FLAG,
    prefix=_TEXT,
    credentials=_object(
        ("accessKeyId", "secretAccessKey"), accessKeyId=_TEXT, secretAccessKey=_TEXT
    ),
    credentialProxy=_FLAG,
    s3fsOptions=_TEXTS,
)
_MOUNT = _object(
    ("mountPath", "options"), bucket=_TEXT, binding=_TEXT, mountPath=_TEXT, options=_OPTIONS
)
_ENV: _Content = {"type": "object", "additionalProperties": _TEXT}
_BOX = "/v1/sandbox/{id}"

PATHS: dict[str, dict[str, Told]] = {
    "/v1/sandbox": {"post": Told("A new id; its first use makes the sandbox.", shapes.JSON)},
    _BOX: {"delete": Told("Remove the sandbox with its files.", "")},
    _BOX + "/running": {"get": Told("Whether it runs; never wakes it.", shapes.JSON)},
    _BOX + "/exec": {
        "post": Told(
            "Run a command: events stdout and stderr (base64), then exit or error.",
            _STREAM, _EXEC, session=True,
        )
    },
    _BOX + "/pty": {
        "get": Told("A terminal over WebSocket.", "101", query=("cols", "rows", "shell", "session"))
    },
    _BOX + "/file/{path}": {
        "get": Told("The bytes of a file in /workspace.", _BYTES, session=True),
        "put": Told("Write a file in /workspace.", shapes.JSON, _BINARY, session=True),
    },
    _BOX + "/persist": {
        "post": Told("/workspace as a tar archive.", _BYTES, query=("excludes",))
    },
    _BOX + "/hydrate": {
        "post": Told("Unpack a tar archive into /workspace, all or nothing.", shapes.JSON, _BINARY)
    },
    _BOX + "/mount": {"post": Told("Mount a bucket.", shapes.JSON, _MOUNT)},
    _BOX + "/unmount": {
        "post": Told("End a mount.", shapes.JSON, _object(("mountPath",), mountPath=_TEXT))
    },
    _BOX + "/session": {
        "post": Told("A new session.", shapes.JSON, _object(id=_TEXT, cwd=_TEXT, env=_ENV))
    },
    _BOX + "/session/{session}": {"delete": Told("End a session.", shapes.JSON)},
    _BOX + "/tunnel/{port}": {
        "post": Told("Open a tunnel to a port.", shapes.JSON, _object(name=_TEXT)),
        "delete": Told("Close the tunnel.", ""),
    },
    "/v1/pool/stats": {"get": Told("Containers by use.", shapes.JSON)},
    "/v1/pool/prime": {"post": Told("Fill the warm pool.", shapes.JSON)},
    "/v1/pool/shutdown-prewarmed": {"post": Told("Empty the warm pool.", shapes.JSON)},
    "/v1/openapi.json": {"get": Told("This document.", shapes.JSON)},
    "/v1/openapi": {"get": Told("This document as a page.", "text/html")},
    "/v1/openapi.html": {"get": Told("This document as a page.", "text/html")},
}  # fmt: skip


@cache
def built() -> dict[str, Any]:
    """Return the document."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Atoll bridge", "version": atoll.__version__},
        "security": [{"bearer": []}],
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _object(("error", "code"), error=_TEXT, code=_TEXT)},
        },
        "paths": {
            path: {method: _operation(path, told) for method, told in methods.items()}
            for path, methods in PATHS.items()
        },
    }


def _operation(path: str, told: Told) -> dict[str, Any]:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    given = [_parameter(name, "path") for name in names]
    given += [_parameter(name, "query") for name in told.query]
    given += [_parameter("Session-Id", "header")] if told.session else []
    operation: dict[str, Any] = {
        "summary": told.summary,
        "parameters": given,
        "responses": _success(told.answer) | {"default": _refused()},
    }
    if told.body:
        kind = _BYTES if told.body is _BINARY else shapes.JSON
        operation["requestBody"] = {"content": {kind: {"schema": told.body}}}
    return operation


def _parameter(name: str, place: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": _TEXT}


def _success(answer: str) -> dict[str, Any]:
    if answer == "101":
        return {"101": {"description": "WebSocket"}}
    if not answer:
        return {"204": {"description": "done"}}
    return {"200": {"description": "done", "content": {answer: {}}}}


def _refused() -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Error"}
    return {"description": "refused or failed", "content": {shapes.JSON: {"schema": schema}}}


async def document(_engine: Engine, _request: Request) -> Response:
    """Answer with the document."""
    return Response(msgspec.json.encode(built()), media_type=shapes.JSON)


async def page(_engine: Engine, _request: Request) -> Response:
    """Answer with a page that lists the operations."""
    rows = "".join(
        f"<tr><td>{method.upper()}</td><td><code>{html.escape(path)}</code></td>"
        f"<td>{html.escape(told.summary)}</td></tr>"
        for path, methods in PATHS.items()
        for method, told in methods.items()
    )
    return HTMLResponse(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Atoll bridge</title>'
        f"<h1>Atoll bridge</h1><table>{rows}</table></html>"
    )
