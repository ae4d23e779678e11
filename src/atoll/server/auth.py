"""Who may call. Keys where there are keys; else the unix socket, and loopback with care.

The unix socket is 0600: whoever opens it owns the engine's files too, so it needs no key. On TCP
without keys only this machine's own programs may call: a web page (foreign `Origin`, cross-site
`Sec-Fetch-Site`) and a rebound name (`Host`) must not reach the engine through a browser.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from starlette.datastructures import Headers

from atoll.errors import ForbiddenError, SandboxNotFoundError, UnauthorizedError
from atoll.wire.ops import Scope

_LOCAL = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
"""What `Host` may say. A parser of URLs would see a name of ours in more than browsers do."""

_SAME_SITE = frozenset({"same-origin", "none"})
_ORDER = (Scope.READ, Scope.RUN, Scope.ADMIN)


class Caller(NamedTuple):
    """What a request may do: `scope` and below, in `namespace` (None: all of them)."""

    scope: Scope
    namespace: str | None = None


_OWNER = Caller(Scope.ADMIN)


def hashed(key: str) -> str:
    """Return the form in which keys are stored: they are random, so a plain hash is enough."""
    return hashlib.sha256(key.encode()).hexdigest()


class Auth:
    """Decides about one request at a time. Pure.

    Args:
        keys: hash → what its holder may do.
    """

    def __init__(self, keys: Mapping[str, Caller]) -> None:
        self._keys = dict(keys)

    @property
    def has_keys(self) -> bool:
        """Whether callers need a key."""
        return bool(self._keys)

    def caller(self, headers: Headers, *, unix: bool) -> Caller:
        """Return who calls.

        Raises:
            UnauthorizedError: no key, or one that is not known.
            ForbiddenError: without keys, a request that does not come from this machine's user.
        """
        given = headers.get("authorization")
        if given is not None and self._keys:
            return self._holder(given)
        if unix:
            return _OWNER
        if self._keys:
            raise UnauthorizedError(
                "this engine wants a key", suggestion="send Authorization: Bearer <key>"
            )
        _check_local(headers)
        return _OWNER

    def _holder(self, given: str) -> Caller:
        scheme, _, key = given.partition(" ")
        digest, found = hashed(key.strip()), None
        # All are compared, each in constant time: the answer's time tells nothing about the keys.
        for known, holder in self._keys.items():
            if hmac.compare_digest(known, digest):
                found = holder
        if scheme.lower() != "bearer" or found is None:
            raise UnauthorizedError("the key is not known to this engine")
        return found


def _check_local(headers: Headers) -> None:
    hosts, origins = headers.getlist("host"), headers.getlist("origin")
    host = hosts[0] if len(hosts) == 1 and _LOCAL.fullmatch(hosts[0]) else None
    # Other ports of this machine are other origins: anybody's page may come from there.
    foreign = origins and (host is None or origins != [f"http://{host}".lower()])
    sites = set(headers.getlist("sec-fetch-site"))
    if host is None or foreign or not sites <= _SAME_SITE:
        raise ForbiddenError(
            "without keys this engine answers only programs of its own machine",
            context={"host": ", ".join(hosts), "origin": ", ".join(origins) or None},
            suggestion="set ATOLL_SERVER_API_KEY at the engine to call it from elsewhere",
        )


def check(caller: Caller, scope: Scope, namespace: str | None) -> None:
    """Refuse what *caller* may not do.

    Raises:
        SandboxNotFoundError: another namespace than the key's: it is not even told that it exists.
        ForbiddenError: the key's scope is too small.
    """
    if caller.namespace is not None and namespace != caller.namespace:
        if namespace is None:
            raise ForbiddenError("the key is for one namespace", context={"scope": scope})
        raise SandboxNotFoundError("no such sandbox")
    if _ORDER.index(caller.scope) < _ORDER.index(scope):
        raise ForbiddenError(
            f"the key allows {caller.scope}, this needs {scope}", context={"scope": scope}
        )


def keys_of(
    configured: str | None, stored: Sequence[tuple[str, str, str | None, str]]
) -> dict[str, Caller]:
    """Return the keys of the settings and of the store."""
    keys = {digest: Caller(Scope(scope), namespace) for digest, _, namespace, scope in stored}
    if configured:
        keys[hashed(configured)] = _OWNER
    return keys
