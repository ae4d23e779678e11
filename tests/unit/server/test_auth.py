from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.datastructures import Headers

from atoll.engine.store.keys import Keys
from atoll.errors import ForbiddenError, SandboxNotFoundError, UnauthorizedError
from atoll.server import auth
from atoll.server.auth import Auth, Caller, Listener
from atoll.wire import ops
from atoll.wire.keys import KeyInfo, Scope


class Ring(Keys):
    """Keys by their text."""

    def __init__(self, **known: KeyInfo) -> None:
        self._by_text = known

    def __bool__(self) -> bool:
        return bool(self._by_text)

    def holder(self, text: str, now: datetime | None = None) -> KeyInfo | None:
        return self._by_text.get(text)


READER = KeyInfo(id="r", name="r", scope=Scope.READ, namespace="N", created_at=datetime.now(UTC))
KEYS = Auth(Ring(reader=READER), "secret")
NONE = Auth(Ring(), None)


def caller(keys: Auth, listener: Listener = Listener.LOOPBACK, **headers: Any) -> Caller:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return keys.caller(Headers({"host": "localhost:8787", **given}), listener)


def test_the_unix_socket_needs_no_key() -> None:
    assert caller(NONE, Listener.UNIX).scope is Scope.ADMIN
    assert caller(KEYS, Listener.UNIX).scope is Scope.ADMIN


def test_a_key_given_on_the_unix_socket_counts() -> None:
    assert caller(KEYS, Listener.UNIX, authorization="Bearer reader").scope is Scope.READ
    with pytest.raises(UnauthorizedError):
        caller(KEYS, Listener.UNIX, authorization="Bearer wrong")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8787", "[::1]:8787"])
def test_without_keys_this_machine_may_call_on_tcp(host: str) -> None:
    assert caller(NONE, host=host).scope is Scope.ADMIN
    assert caller(NONE, host=host, origin=f"http://{host.lower()}").scope is Scope.ADMIN
    assert caller(NONE, host=host, sec_fetch_site="none").scope is Scope.ADMIN


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
        {"x_forwarded_for": "203.0.113.1"},
        {"forwarded": "for=203.0.113.1"},
        {"via": "1.1 proxy"},
    ],
)
def test_without_keys_no_web_page_and_no_rebound_name_gets_in(headers: dict[str, Any]) -> None:
    with pytest.raises(ForbiddenError):
        caller(NONE, **headers)


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
        NONE.caller(Headers(raw=raw), Listener.LOOPBACK)


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
    found = caller(KEYS, authorization="Bearer secret", host="far.example")
    assert found == Caller(Scope.ADMIN, id=auth.SETTINGS)
    assert caller(KEYS, authorization="bearer reader") == Caller(Scope.READ, "N", "r")


def test_another_address_than_loopback_always_wants_a_key() -> None:
    """Also when the last key was revoked while the engine listens there."""
    for headers in ({}, {"authorization": "Bearer anything"}):
        with pytest.raises(UnauthorizedError):
            caller(NONE, Listener.NETWORK, **headers)


def test_a_token_counts_where_it_is_passed_and_never_beats_the_header() -> None:
    headers = Headers({"host": "localhost"})
    found = KEYS.caller(headers, Listener.NETWORK, token="reader")
    assert found.id == "r"
    with pytest.raises(UnauthorizedError):
        KEYS.caller(Headers({"authorization": "Bearer x"}), Listener.NETWORK, token="reader")


def test_a_scope_allows_what_is_below_it() -> None:
    auth.check(Caller(Scope.RUN), ops.INFO, "N")
    auth.check(Caller(Scope.ADMIN, "N"), ops.CONFIGURE_NAMESPACE, "N")
    with pytest.raises(ForbiddenError):
        auth.check(Caller(Scope.RUN), ops.LIST_KEYS, None)


def test_a_key_of_one_namespace_does_not_learn_of_another() -> None:
    with pytest.raises(SandboxNotFoundError):
        auth.check(Caller(Scope.ADMIN, "N"), ops.INFO, "M")
    with pytest.raises(ForbiddenError):
        auth.check(Caller(Scope.ADMIN, "N"), ops.LIST_IMAGES, None)
    auth.check(Caller(Scope.READ, "N"), ops.VERSION, None)


def test_the_key_of_the_settings_is_not_kept_as_it_is() -> None:
    assert "secret" not in str(vars(KEYS))
    assert KEYS.has_keys
    assert not NONE.has_keys
