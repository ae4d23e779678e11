"""The OpenAPI 3.1 document of the native API, from the table of operations and its structs.

Nothing about an operation is written here: its name, path, fields and descriptions come from
`wire`. Here is how a kind of operation looks on HTTP: what is in the query, which forms an answer
may have. Errors are one schema with the codes of the registry.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

import atoll
from atoll import errors
from atoll.server import shapes
from atoll.wire import frames, ids, ops, process
from atoll.wire.base import Empty
from atoll.wire.ops import Kind, Op
from atoll.wire.sandbox import BuildEvent

PATH = "/v2/openapi.json"

Endpoint = Callable[[Request], Awaitable[ASGIApp]]
Json = dict[str, Any]

_REF = "#/components/schemas/{name}"
_BYTES: Json = {"application/octet-stream": {"schema": {}}}
_TEXT = {"schema": {"type": "string"}}
_PLACEHOLDER = re.compile(r"\{(\w+)\}")

_NAMES: Mapping[str, re.Pattern[str]] = {
    "namespace": ids.NAMESPACE,
    "id": ids.SANDBOX,
    "session": ids.SESSION,
    "operation": ids.OPERATION,
    "process": ids.OPERATION,
}
"""Placeholder → what may stand there."""

_ABOUT = """Named, durable sandboxes. See the errors' `code` for what went wrong.

A name is a sandbox: no call is needed before others. One that needs a running sandbox makes it,
and what is listed of a sandbox that was not made yet, or was deleted, is empty. Only
`get_sandbox` tells whether there is one.

An `Idempotency-Key` names one call: with the same key comes the same answer, also when what it
tells of has been deleted since."""

_SPECIAL: Mapping[type, Json] = {
    process.ExecResult: {
        "title": "ExecResult",
        "description": "How a command ended, with its output.",
        "type": "object",
        "required": ["success", "exitCode", "stdout", "stderr", "command", "duration", "timestamp"],
        "properties": {
            "success": {"type": "boolean"},
            "exitCode": {"type": "integer"},
            "signal": {"type": ["string", "null"]},
            "stdout": {"type": "string"},
            "stderr": {"type": "string"},
            "stdoutBase64": {"type": "string", "description": "Where stdout is not UTF-8."},
            "stderrBase64": {"type": "string", "description": "Where stderr is not UTF-8."},
            "command": {"type": ["string", "array"], "items": {"type": "string"}},
            "duration": {"type": "integer", "description": "Milliseconds."},
            "timestamp": {"type": "string", "format": "date-time"},
            "sessionId": {"type": ["string", "null"]},
            "truncated": {"type": "boolean"},
            "timedOut": {"type": "boolean"},
            "oomKilled": {"type": "boolean"},
            "pidsLimited": {"type": "boolean"},
            "stateSaved": {"type": "boolean"},
            "stdoutTotal": {"type": "integer", "description": "Bytes, also where it was cut."},
            "stderrTotal": {"type": "integer"},
        },
    },
    process.ProcessLogs: {
        "title": "ProcessLogs",
        "description": "The output of a process that is still kept.",
        "type": "object",
        "required": ["processId", "stdout", "stderr", "truncated"],
        "properties": {
            "processId": {"type": "string"},
            "stdout": {"type": "string"},
            "stderr": {"type": "string"},
            "stdoutBase64": {"type": "string"},
            "stderrBase64": {"type": "string"},
            "truncated": {"type": "boolean"},
        },
    },
}
"""Results whose JSON is not that of their fields (`to_dict`)."""

_BUFFERED = frozenset({ops.EXEC, ops.ATTACH, ops.RUN_CODE})
"""Streams that become one JSON result where the caller asks for it."""

_LINKS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "create_session": (("session", "$response.body#/id"),),
    "start_process": (("process", "$response.body#/id"),),
    "create_key": (("key", "$response.body#/info/id"),),
}
"""Operation → placeholder of others that its answer fills, and where it stands."""


def endpoints() -> dict[str, Endpoint]:
    """Return path → endpoint."""

    async def document(_: Request) -> Response:
        return Response(_encoded(), media_type=shapes.JSON)

    return {PATH: document}


@cache
def _encoded() -> bytes:
    return msgspec.json.encode(build(ops.TABLE))


def build(table: Iterable[Op[Any, Any]]) -> Json:
    """Return the document of *table*."""
    table = tuple(table)
    structs = {op.request for op in table} | {op.result for op in table} | {BuildEvent}
    _, schemas = msgspec.json.schema_components(structs - set(_SPECIAL), ref_template=_REF)
    schemas |= {kind.__name__: schema for kind, schema in _SPECIAL.items()}
    paths: dict[str, Json] = {}
    for op in table:
        paths.setdefault(op.path, {})[op.method.lower()] = _operation(op, schemas, table)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Atoll",
            "version": atoll.__version__,
            "description": _ABOUT,
        },
        "servers": [{"url": "/"}],
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas | {"Error": _error()},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "responses": {"Error": {
                "description": "What went wrong.",
                "content": {shapes.JSON: {"schema": _ref("Error")}},
            }},
        },
    }  # fmt: skip


def _operation(op: Op[Any, Any], schemas: Json, table: tuple[Op[Any, Any], ...]) -> Json:
    summary, _, more = (op.request.__doc__ or "").partition("\n")
    found: Json = {
        "operationId": op.name,
        "summary": summary if op.request is not Empty else op.name.replace("_", " "),
        "description": "\n\n".join(filter(None, [more.strip(), f"Scope: {op.scope}."])),
        "tags": [_tag(op)],
        "parameters": [*_placeholders(op), *_headers(op), *_query(op, schemas)],
        "responses": {"200": _success(op)} | _others(op),
    }
    if links := _links(op, table):
        found["responses"]["200"]["links"] = links
    if body := _body(op):
        found["requestBody"] = body
    return found


def _tag(op: Op[Any, Any]) -> str:
    parts = [part for part in op.path.split("/") if part and not part.startswith("{")]
    return parts[3] if len(parts) > 3 else parts[-1]


def _placeholders(op: Op[Any, Any]) -> list[Json]:
    found = []
    for name in _PLACEHOLDER.findall(op.path):
        schema: Json = {"type": "string", "minLength": 1}
        if name in _NAMES:
            schema["pattern"] = f"^{_NAMES[name].pattern}$"
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    return found


def _headers(op: Op[Any, Any]) -> list[Json]:
    found: dict[str, Json] = {}
    if op.mutates:
        found["Idempotency-Key"] = {"type": "string", "pattern": f"^{ids.OPERATION.pattern}$"}
    if op in {ops.EXEC, ops.ATTACH, ops.STREAM_PROCESS_LOGS}:
        found["Last-Event-ID"] = {"type": "string", "pattern": "^[0-9]{1,18}$"}
    return [{"name": name, "in": "header", "schema": schema} for name, schema in found.items()]


def in_query(op: Op[Any, Any]) -> bool:
    """Whether the fields of the request are in the query, not in the body."""
    return op.method in {"GET", "DELETE"} or op.kind in {Kind.UPLOAD, Kind.DOWNLOAD}


def _query(op: Op[Any, Any], schemas: Json) -> list[Json]:
    if not in_query(op):
        return []
    schema = schemas[op.request.__name__]
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "schema": _without_null(field),
        }
        for name, field in schema["properties"].items()
    ]


def _without_null(schema: Json) -> Json:
    """A query has no null: what is not there is None."""
    schema = {name: value for name, value in schema.items() if name != "default" or value}
    kinds = [kind for kind in schema.pop("anyOf", []) if kind != {"type": "null"}]
    return schema | kinds[0] if len(kinds) == 1 else schema | ({"anyOf": kinds} if kinds else {})


def _body(op: Op[Any, Any]) -> Json | None:
    if op.kind is Kind.UPLOAD:
        return {"required": True, "content": _BYTES}
    if in_query(op):
        return None
    content: Json = {shapes.JSON: {"schema": _ref(op.request.__name__)}}
    if op is ops.EXEC:
        content[frames.CONTENT_TYPE] = {"schema": {"contentMediaType": frames.CONTENT_TYPE}}
    required = any(field.required for field in msgspec.structs.fields(op.request))
    return {"required": required, "content": content}


def _success(op: Op[Any, Any]) -> Json:
    result: Json = {shapes.JSON: {"schema": _ref(op.result.__name__)}}
    content = result
    if op in {ops.BUILD_IMAGE, ops.BUILD_BASE}:
        content = {shapes.NDJSON: _TEXT}
    elif op.kind is Kind.STREAM:
        streams: Json = {frames.CONTENT_TYPE: _TEXT, shapes.SSE: _TEXT, shapes.NDJSON: _TEXT}
        content = streams | (result if op in _BUFFERED else {})
    elif op.kind is Kind.DOWNLOAD:
        content = {"*/*": {"schema": {}}}
    return {"description": (op.result.__doc__ or "").partition("\n")[0], "content": content}


def _others(op: Op[Any, Any]) -> Json:
    error = {"$ref": "#/components/responses/Error"}
    found: Json = {"4XX": error, "5XX": error}
    if op is ops.READ_FILE:
        part = {
            "description": "The part that `Range` asks for.",
            "content": {"*/*": {"schema": {}}},
        }
        found |= {"206": part, "304": {"description": "`If-None-Match` names what is there."}}
    return found


def _links(op: Op[Any, Any], table: tuple[Op[Any, Any], ...]) -> Json:
    found: Json = {}
    for placeholder, place in _LINKS.get(op.name, ()):
        for other in table:
            if f"{{{placeholder}}}" in other.path:
                known = {
                    name: f"$request.path.{name}"
                    for name in _PLACEHOLDER.findall(other.path)
                    if name != placeholder
                }
                parameters = {f"path.{name}": value for name, value in known.items()}
                found[other.name] = {
                    "operationId": other.name,
                    "parameters": parameters | {f"path.{placeholder}": place},
                }
    return found


def _error() -> Json:
    codes = [*errors.registry(), errors.SandboxError.code]
    return {
        "title": "Error",
        "type": "object",
        "required": ["code", "message", "context", "httpStatus", "timestamp", "requestId"],
        "properties": {
            "code": {"type": "string", "examples": codes},
            "message": {"type": "string"},
            "context": {"type": "object"},
            "httpStatus": {"type": "integer"},
            "suggestion": {"type": ["string", "null"]},
            "timestamp": {"type": "string", "format": "date-time"},
            "requestId": {"type": "string"},
            "retryAfter": {"type": "number"},
        },
    }


def _ref(name: str) -> Json:
    return {"$ref": _REF.format(name=name)}
