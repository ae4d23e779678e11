"""Which web pages may call the API. None, unless the settings name their origins. Pure.

A page is allowed by its origin and authenticates by a key like everybody: no cookies are involved,
so `Access-Control-Allow-Credentials` is never sent.
"""

from collections.abc import Collection, Sequence

from starlette.datastructures import Headers

from atoll.wire.ops import RESULT_HEADER

_ALLOWED = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Range, X-Request-Id"
_EXPOSED = f"ETag, Content-Range, Retry-After, X-Request-Id, {RESULT_HEADER}"


def headers(origins: Sequence[str], allowed: Collection[str]) -> dict[str, str]:
    """Return what an answer says to the page that asked."""
    if not allowed:
        return {}
    if len(origins) != 1 or origins[0] not in allowed:
        return {"vary": "Origin"}
    return {
        "access-control-allow-origin": origins[0],
        "access-control-allow-methods": "GET, PUT, POST, DELETE",
        "access-control-allow-headers": _ALLOWED,
        "access-control-expose-headers": _EXPOSED,
        "access-control-max-age": "600",
        "vary": "Origin",
    }


def is_preflight(method: str, headers: Headers) -> bool:
    """Whether a browser asks if it may ask."""
    return method == "OPTIONS" and "access-control-request-method" in headers
