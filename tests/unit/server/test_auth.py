from typing import Any

import pytest
from starlette.datastructures import Headers

from atoll.errors import ForbiddenError, SandboxNotFoundError, UnauthorizedError
from atoll.server import auth
from atoll.server.auth import Auth, Caller
from atoll.wire.ops import Scope

KEYS = auth.keys_of("secret", [(auth.hashed("reader"), "r", "N", "read")])


def caller(keys: dict[str, Caller], *, unix: bool = False, **headers: Any) -> Caller:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return Auth(keys).caller(Headers({"host": "localhost:8787", **given}), unix=unix)


def test_the_unix_socket_needs_no_key() -> None:
    assert caller({}, unix=True).scope is Scope.ADMIN
    assert caller(KEYS, unix=True).scope is Scope.ADMIN


def test_a_key_given_on_the_unix_socket_counts() -> None:
    assert caller(KEYS, unix=True, authorization="Bearer reader").scope is Scope.READ
    with pytest.raises(UnauthorizedError):
        caller(KEYS, unix=True, authorization="Bearer wrong")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8787", "[::1]:8787"])
def test_without_keys_this_machine_may_call_on_tcp(host: str) -> None:
    assert caller({}, host=host).scope is Scope.ADMIN
    assert caller({}, host=host, origin=f"http://{host.lower()}").scope is Scope.ADMIN
    assert caller({}, host=host, sec_fetch_site="none").scope is Scope.ADMIN


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "localhost.evil.example"},
        {"host": "127.0.0.1.evil.example"},
        {"host": ""},
        {"host": "[::1"},
        {"host": "evil@localhost@evil.example"},
        {"host": "evil.example@localhost"},
        {"host": "user:pw@127.0.0.1"},
        {"host": "localhost/evil"},
        {"host": "localhost#evil.example"},
        {"host": "localhost\\evil.example"},
        {"host": "localhost."},
        {"host": "localhost:"},
        {"host": "localhost:8787\n"},
        {"host": "127.1"},
        {"host": "0.0.0.0"},
        {"host": "::1"},
        {"origin": "http://localhost:3000"},
        {"origin": "http://localhost"},
        {"origin": "https://localhost:8787"},
        {"origin": "http://127.0.0.1:8787"},
        {"origin": "http://localhost:8787/"},
        {"origin": "http://localhost:8787@evil.example"},
        {"origin": ""},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://[bad"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_without_keys_no_web_page_and_no_rebound_name_gets_in(headers: dict[str, Any]) -> None:
    with pytest.raises(ForbiddenError):
        caller({}, unix=False, **headers)


@pytest.mark.parametrize(
    "pairs",
    [
        [("host", "localhost"), ("host", "evil.example")],
        [("host", "localhost"), ("host", "localhost")],
        [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://evil.example")],
        [("host", "localhost"), ("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")],
        [],
    ],
)
def test_without_keys_a_header_given_twice_is_refused(pairs: list[tuple[str, str]]) -> None:
    """Who stands between may have looked at the other one."""
    raw = [(name.encode(), value.encode()) for name, value in pairs]
    with pytest.raises(ForbiddenError):
        Auth({}).caller(Headers(raw=raw), unix=False)


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer wrong", "Basic secret", "secret", "Bearer é"]
)
def test_wrong_keys_are_refused(given: str) -> None:
    with pytest.raises(UnauthorizedError):
        caller(KEYS, authorization=given)


def test_with_keys_a_missing_one_is_refused_even_from_this_machine() -> None:
    with pytest.raises(UnauthorizedError):
        caller(KEYS)


def test_keys_have_scopes_and_namespaces() -> None:
    assert caller(KEYS, authorization="Bearer secret", host="far.example") == Caller(Scope.ADMIN)
    assert caller(KEYS, authorization="bearer reader") == Caller(Scope.READ, "N")


def test_a_scope_allows_what_is_below_it() -> None:
    auth.check(Caller(Scope.RUN), Scope.READ, "N")
    auth.check(Caller(Scope.ADMIN, "N"), Scope.ADMIN, "N")
    with pytest.raises(ForbiddenError):
        auth.check(Caller(Scope.RUN), Scope.ADMIN, None)


def test_a_key_of_one_namespace_does_not_learn_of_another() -> None:
    with pytest.raises(SandboxNotFoundError):
        auth.check(Caller(Scope.ADMIN, "N"), Scope.READ, "M")
    with pytest.raises(ForbiddenError):
        auth.check(Caller(Scope.ADMIN, "N"), Scope.READ, None)


def test_keys_are_not_kept_as_they_are() -> None:
    assert "secret" not in str(KEYS)
    assert Auth(KEYS).has_keys
    assert not Auth({}).has_keys
