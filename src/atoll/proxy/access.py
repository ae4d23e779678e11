"""Who may visit a private preview: a bearer header, or a cookie that a one-time link gave. Pure.

A cookie is the expiry and a keyed hash of it; the key is the exposure's own secret, so it is worth
nothing at another preview, needs no memory, and ends when the secret does. Neither the cookie nor
the bearer header reaches the server inside: code there must not be able to visit as its visitors.
"""

import hashlib
import hmac
import re
import time
from enum import Enum
from typing import NamedTuple

from atoll.wire.http1 import Fields, Request

COOKIE = b"atoll-preview"
SECURE_COOKIE = b"__Host-atoll-preview"
"""Browsers take this name only from the host itself, so no sibling can set it."""

COOKIE_TIME = 24 * 3600
"""Seconds that a browser which used a link stays let in."""

ENTER = re.compile(rb"/\.atoll/enter/([A-Za-z0-9_-]{16,64})(?:\?.*)?")
"""Path of a one-time link."""


class Access(NamedTuple):
    """What a visitor has to show. `auth` of None: either way will do."""

    public: bool
    auth: str | None
    secret: str


class Verdict(Enum):
    """What to do with a request."""

    PASS = "pass"  # noqa: S105  # not a password
    REFUSE = "refuse"


def judge(access: Access, fields: Fields, now: float | None = None) -> Verdict:
    """Return whether a request with these *fields* may pass."""
    if access.public:
        return Verdict.PASS
    by_header = access.auth != "cookie" and _has_bearer(access, fields)
    by_cookie = access.auth != "bearer" and _has_cookie(
        access, fields, time.time() if now is None else now
    )
    return Verdict.PASS if by_header or by_cookie else Verdict.REFUSE


def _has_bearer(access: Access, fields: Fields) -> bool:
    return any(_is_bearer(access, name, value) for name, value in fields)


def _is_bearer(access: Access, name: bytes, value: bytes) -> bool:
    scheme, _, given = value.partition(b" ")
    return (
        name.lower() == b"authorization"
        and scheme.lower() == b"bearer"
        and hmac.compare_digest(given.strip(), access.secret.encode())
    )


def _has_cookie(access: Access, fields: Fields, now: float) -> bool:
    for name, value in fields:
        if name.lower() == b"cookie" and any(
            _is_valid(access, pair.partition(b"=")[2], now) for pair in _ours(value)
        ):
            return True
    return False


def _ours(value: bytes) -> list[bytes]:
    return [pair for pair in _pairs(value) if _is_ours(pair)]


def _pairs(value: bytes) -> list[bytes]:
    return [pair.strip() for pair in value.split(b";")]


def _is_ours(pair: bytes) -> bool:
    return pair.partition(b"=")[0].strip() in {COOKIE, SECURE_COOKIE}


def _is_valid(access: Access, given: bytes, now: float) -> bool:
    end, _, digest = given.partition(b".")
    if not end.isdigit() or len(end) > 12 or int(end) <= now:
        return False
    return hmac.compare_digest(digest, _digest(access, end))


def _digest(access: Access, end: bytes) -> bytes:
    return hmac.new(access.secret.encode(), b"cookie " + end, hashlib.sha256).hexdigest().encode()


def new_cookie(access: Access, *, secure: bool, now: float | None = None) -> bytes:
    """Return the value of ``Set-Cookie`` for a browser that used a link."""
    end = str(int((time.time() if now is None else now) + COOKIE_TIME)).encode()
    name = SECURE_COOKIE if secure else COOKIE
    more = b"; Secure" if secure else b""
    age = str(COOKIE_TIME).encode()
    value = end + b"." + _digest(access, end)
    return name + b"=" + value + b"; Path=/; Max-Age=" + age + b"; HttpOnly; SameSite=Lax" + more


def without_credentials(access: Access, request: Request) -> Request:
    """Return *request* without what lets visitors in."""
    if access.public and b"cookie" not in request.lookup:
        return request
    kept: Fields = []
    for name, value in request.fields:
        if name.lower() == b"cookie":
            rest = [pair for pair in _pairs(value) if not _is_ours(pair)]
            if len(rest) < len(_pairs(value)):
                if rest:
                    kept.append((name, b"; ".join(rest)))
                continue
        elif not access.public and _is_bearer(access, name, value):
            continue
        kept.append((name, value))
    return request._replace(fields=kept)
