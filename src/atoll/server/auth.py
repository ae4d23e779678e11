"""Who may call. Keys where there are keys; else the unix socket, and loopback with care.

The unix socket is 0600: whoever opens it owns the engine's files too, so it needs no key. On TCP
without keys only this machine's own programs may call: a web page (foreign `Origin`, cross-site
`Sec-Fetch-Site`) and a rebound name (`Host`) must not reach the engine through a browser.
"""

import hmac
import re
from enum import StrEnum
from typing import Any, NamedTuple

from starlette.datastructures import Headers

from atoll.engine.store.keys import NOBODY, Keys, hashed
from atoll.errors import ForbiddenError, SandboxNotFoundError, UnauthorizedError
from atoll.wire.keys import Scope
from atoll.wire.ops import Op

_LOCAL = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
"""What `Host` may say. A parser of URLs would see a name of ours in more than browsers do."""

_SAME_SITE = frozenset({"same-origin", "none"})
_PASSED_ON = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto")
"""A proxy on this machine says by these that the caller is elsewhere."""

_ORDER = (Scope.READ, Scope.RUN, Scope.ADMIN)


OWNER = "owner"
"""Who calls without a key: by the unix socket, or a program of this machine."""

SETTINGS = "settings"
"""Who calls with the key of the settings."""


class Listener(StrEnum):
    """Where a request came in."""

    UNIX = "unix"
    LOOPBACK = "loopback"
    NETWORK = "network"  # any other address: never without a key, whatever is revoked


class Caller(NamedTuple):
    """Who calls, and what it may do: `scope` and below, in `namespace` (None: all of them).

    `id` is that of the key, `OWNER` or `SETTINGS`. Limits of None are those of the settings.
    """

    scope: Scope
    namespace: str | None = None
    id: str = OWNER
    rate: float | None = None
    concurrency: int | None = None


class Auth:
    """Decides about one request at a time.

    Args:
        keys: those of the store.
        configured: the key of the settings.
    """

    def __init__(self, keys: Keys, configured: str | None) -> None:
        self._keys = keys
        self._configured = hashed(configured) if configured else None

    @property
    def has_keys(self) -> bool:
        """Whether callers on TCP need a key."""
        return bool(self._keys) or self._configured is not None

    def caller(self, headers: Headers, listener: Listener, *, token: str | None = None) -> Caller:
        """Return who calls.

        Args:
            token: a key given otherwise than by the header, where that is allowed.

        Raises:
            UnauthorizedError: no key, or one that is not known.
            ForbiddenError: without keys, a request that does not come from this machine's user.
        """
        given = headers.get("authorization", f"Bearer {token}" if token else None)
        if given is not None and (self.has_keys or listener is Listener.NETWORK):
            return self._holder(given)
        if listener is Listener.UNIX:
            return Caller(Scope.ADMIN)
        if self.has_keys or listener is Listener.NETWORK:
            raise UnauthorizedError(
                "this engine wants a key", suggestion="send Authorization: Bearer <key>"
            )
        _check_local(headers)
        return Caller(Scope.ADMIN)

    def _holder(self, given: str) -> Caller:
        scheme, _, text = given.partition(" ")
        text = text.strip()
        found = self._keys.holder(text)
        settings = hmac.compare_digest(self._configured or NOBODY, hashed(text))
        if scheme.lower() == "bearer" and settings:
            return Caller(Scope.ADMIN, id=SETTINGS)
        if scheme.lower() == "bearer" and found is not None:
            return Caller(found.scope, found.namespace, found.id, found.rate, found.concurrency)
        raise UnauthorizedError(
            "the key is not known to this engine", suggestion="it may be revoked or expired"
        )


def _check_local(headers: Headers) -> None:
    hosts, origins = headers.getlist("host"), headers.getlist("origin")
    host = hosts[0] if len(hosts) == 1 and _LOCAL.fullmatch(hosts[0]) else None
    # Other ports of this machine are other origins: anybody's page may come from there.
    foreign = origins and (host is None or origins != [f"http://{host}".lower()])
    sites = set(headers.getlist("sec-fetch-site"))
    passed_on = any(name in headers for name in _PASSED_ON)
    if host is None or foreign or passed_on or not sites <= _SAME_SITE:
        raise ForbiddenError(
            "without keys this engine answers only programs of its own machine",
            context={"host": ", ".join(hosts), "origin": ", ".join(origins) or None},
            suggestion="set ATOLL_SERVER_API_KEY at the engine to call it from elsewhere",
        )


def check(caller: Caller, op: Op[Any, Any], namespace: str | None) -> None:
    """Refuse what *caller* may not do.

    Raises:
        SandboxNotFoundError: another namespace than the key's: it is not even told that it exists.
        ForbiddenError: the key's scope is too small.
    """
    if caller.namespace is not None and namespace != caller.namespace and not op.shared:
        if namespace is None:
            raise ForbiddenError(
                "the key is for one namespace", context={"namespace": caller.namespace}
            )
        raise SandboxNotFoundError(
            "no such sandbox",
            suggestion="the key is for one namespace: name it, as in env.namespace(…)",
        )
    if _ORDER.index(caller.scope) < _ORDER.index(op.scope):
        raise ForbiddenError(
            f"the key allows {caller.scope}, this needs {op.scope}", context={"scope": op.scope}
        )
