"""What a visitor is told when there is nothing to show: a page for browsers, JSON for programs.

Pure. The page names nothing that is not in the address anyway.
"""

import html
import json
from datetime import UTC, datetime

from atoll.errors import SandboxError
from atoll.wire.http1 import Fields, values, write_response

_REASONS = {
    400: b"Bad Request", 401: b"Unauthorized", 404: b"Not Found", 405: b"Method Not Allowed",
    410: b"Gone", 414: b"URI Too Long", 421: b"Misdirected Request", 429: b"Too Many Requests",
    431: b"Request Header Fields Too Large", 500: b"Internal Server Error",
    501: b"Not Implemented", 502: b"Bad Gateway", 503: b"Service Unavailable",
    505: b"HTTP Version Not Supported",
}  # fmt: skip

_TITLES = {
    "INVALID_TOKEN": "There is no preview at this address",
    "STALE_PREVIEW_URL": "This preview is asleep",
    "SERVICE_NOT_RESPONDING": "The preview does not answer",
    "UNAUTHORIZED": "This preview is private",
    "RATE_LIMITED": "Too many requests",
    "CONTAINER_UNAVAILABLE": "This preview is busy",
}

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width"><meta name="robots" content="noindex">
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:15vh auto;padding:0 1rem}}
code{{color:#777}}@media(prefers-color-scheme:dark){{body{{background:#111;color:#ddd}}}}</style>
</head><body><h1>{title}</h1><p>{message}.</p>{hint}<p><code>{status} {code}</code></p></body></html>
"""


def wants_page(fields: Fields) -> bool:
    """Whether the visitor is a browser that shows pages."""
    return any(b"text/html" in value.lower() for value in values(fields, b"accept"))


def write(
    error: SandboxError, request_id: str, fields: Fields, *, head_only: bool, close: bool
) -> bytes:
    """Return the whole answer for *error* to a request that had *fields*."""
    status = error.wire_status
    kind, body = (
        (b"text/html; charset=utf-8", _page(error))
        if wants_page(fields)
        else (b"application/json", _envelope(error, request_id))
    )
    answer: Fields = [
        (b"Content-Type", kind),
        (b"Content-Length", str(len(body)).encode()),
        (b"Cache-Control", b"no-store"),
        (b"X-Request-Id", request_id.encode()),
        (b"Connection", b"close" if close else b"keep-alive"),
    ]
    if status == 401:
        answer.append((b"WWW-Authenticate", b"Bearer"))
    if error.retry_after is not None:
        answer.append((b"Retry-After", str(max(1, round(error.retry_after))).encode()))
    head = write_response(status, _REASONS.get(status, b"Error"), answer)
    return head if head_only else head + body


def _page(error: SandboxError) -> bytes:
    title = _TITLES.get(error.wire_code, "This request was refused")
    hint = f"<p>{html.escape(error.suggestion)}.</p>" if error.suggestion else ""
    page = _PAGE.format(
        title=html.escape(title),
        message=html.escape(error.message[:1].upper() + error.message[1:]),
        hint=hint,
        status=error.wire_status,
        code=html.escape(error.wire_code),
    )
    return page.encode()


def _envelope(error: SandboxError, request_id: str) -> bytes:
    body = error.to_wire()
    body["requestId"] = request_id
    body["timestamp"] = datetime.now(UTC).isoformat(timespec="milliseconds")
    return json.dumps(body, default=str).encode()
