"""The rules of exposing ports."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from atoll.engine.ports import exposures as rules
from atoll.engine.ports.exposures import Exposure
from atoll.errors import (
    CustomDomainRequiredError,
    InvalidPortError,
    InvalidPortNumberError,
    InvalidSandboxIdError,
    PortAlreadyExposedError,
    SandboxError,
    ValidationFailedError,
)
from atoll.wire import preview
from atoll.wire.ports import ExposePort

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def exposed(
    old: Exposure | None = None, generation: int = 1, now: datetime = NOW, **wanted: Any
) -> Exposure:
    return rules.exposed(
        old,
        ExposePort(port=8080, **wanted),
        owner=("N", "box"),
        layer_id="layer",
        generation=generation,
        hostname="example.com",
        now=now,
    )


@pytest.mark.parametrize("port", [1024, 8080, 65535, "8080"])
def test_ports_that_may_be_exposed(port: object) -> None:
    assert rules.check_port(port) == int(str(port))


@pytest.mark.parametrize(
    ("port", "error"),
    [(1023, InvalidPortError), (3000, InvalidPortError), (80, InvalidPortError),
     (0, InvalidPortNumberError), (-1, InvalidPortNumberError), (65536, InvalidPortNumberError),
     ("1e3", InvalidPortNumberError), ("", InvalidPortNumberError), (None, InvalidPortNumberError),
     ("9" * 5_000, InvalidPortNumberError), ("\u0663", InvalidPortNumberError)],
)  # fmt: skip
def test_ports_that_may_not(port: object, error: type[SandboxError]) -> None:
    with pytest.raises(error):
        rules.check_port(port)


@pytest.mark.parametrize("id", ["a-b", "box", "a" * 40, "0"])
def test_w04_ids_that_are_part_of_a_host_name(id: str) -> None:
    rules.check_id(id)
    label = f"65535-{id}-{'t' * 16}"
    assert len(label) <= 63
    assert preview.parse(f"{label}.example.com") == (65535, id, "t" * 16, "example.com")


@pytest.mark.parametrize("id", ["MyBox", "a_b", "a.b", "a" * 41])
def test_w04_ids_that_are_not_are_refused_when_a_port_is_exposed(id: str) -> None:
    with pytest.raises(InvalidSandboxIdError):
        rules.check_id(id)


@pytest.mark.parametrize("token", ["a", "a_b", "_", "0123456789abcdef"])
def test_w04_tokens(token: str) -> None:
    rules.check_access(ExposePort(port=8080, token=token))


@pytest.mark.parametrize("token", ["", "a-b", "A", "a" * 17, "a.b", "é", "a\n"])
def test_w04_tokens_that_would_make_another_host_name_are_refused(token: str) -> None:
    with pytest.raises(ValidationFailedError):
        rules.check_access(ExposePort(port=8080, token=token))


def test_what_else_is_malformed_is_refused() -> None:
    for wanted in ({"auth": "password"}, {"name": "x" * 200}, {"name": "a\nb"}):
        with pytest.raises(ValidationFailedError):
            rules.check_access(ExposePort(port=8080, **wanted))  # type: ignore[arg-type]


@pytest.mark.parametrize("hostname", ["example.com", "localhost", "localhost:8787", "A.B"])
def test_host_names(hostname: str) -> None:
    assert rules.check_hostname(hostname) == hostname.lower()


@pytest.mark.parametrize("hostname", ["127.0.0.1:80", "127.1.2.3", "0.0.0.0:1", "[::1]:8787"])
def test_an_address_of_this_machine_has_no_names_below_it_but_localhost_has(hostname: str) -> None:
    port = re.search(r":\d+$", hostname)
    assert rules.check_hostname(hostname) == "localhost" + (port[0] if port else "")


@pytest.mark.parametrize(
    "hostname", ["", "a b", "http://a", "a/b", "a:x", "-a", "a@b", "a" * 300, "a\n"]
)
def test_what_is_no_host_name_is_refused(hostname: str) -> None:
    with pytest.raises(ValidationFailedError):
        rules.check_hostname(hostname)


@pytest.mark.parametrize(
    "hostname",
    ["x.workers.dev", "workers.dev", "a.b.WORKERS.dev:443", "192.0.2.1:80", "[2001:db8::1]"],
)
def test_a_domain_without_wildcards_needs_another(hostname: str) -> None:
    with pytest.raises(CustomDomainRequiredError):
        rules.check_hostname(hostname)


@pytest.mark.parametrize(
    ("hostname", "url"),
    [
        ("example.com", "https://8080-box-tok.example.com"),
        ("example.com:8443", "https://8080-box-tok.example.com:8443"),
        ("localhost:8787", "http://8080-box-tok.localhost:8787"),
        ("dev.localhost", "http://8080-box-tok.dev.localhost"),
    ],
)
def test_the_address_of_a_preview(hostname: str, url: str) -> None:
    assert rules.url(exposed(token="tok"), hostname) == url
    assert rules.told(exposed(token="tok"), hostname).url == url


def test_a_default_token_cannot_be_guessed() -> None:
    tokens = {rules.new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(len(token) == 16 and token.isalnum() for token in tokens)
    assert 16 * 5.16 > 80  # bits of 36 letters


def test_the_same_port_again_keeps_its_token() -> None:
    first = exposed(name="app")
    again = exposed(first)
    assert (again.token, again.secret, again.name) == (first.token, first.secret, "app")


def test_another_token_or_name_is_refused_while_it_forwards() -> None:
    first = exposed(token="tok", name="app")
    for field in ("token", "name"):
        other: dict[str, Any] = {field: "other"}
        with pytest.raises(PortAlreadyExposedError):
            exposed(first, **other)
    assert exposed(first, token="tok", name="app").token == "tok"


def test_after_a_sleep_it_may_be_replaced_or_made_active_again() -> None:
    first = exposed(token="tok", name="app")
    assert exposed(first, generation=2).token == "tok"
    assert exposed(first, generation=2).generation == 2
    other = exposed(first, generation=2, token="other", name="new")
    assert (other.token, other.name) == ("other", "new")
    assert other.secret != first.secret


def test_access_is_what_was_said_last() -> None:
    first = exposed(auth="cookie")
    assert not first.public
    assert not exposed(public=False).public
    again = exposed(first)
    assert again.public
    assert again.auth is None


def test_an_end_is_an_end() -> None:
    ends = exposed(expires_ms=1_000)
    assert not ends.over(NOW)
    assert ends.over(NOW + timedelta(seconds=1))
    late = exposed(ends, now=NOW + timedelta(seconds=2), token="other")
    assert late.token == "other"


def test_a_secret_is_told_to_whoever_exposes_and_only_where_it_matters() -> None:
    private = exposed(auth="bearer")
    assert rules.told(private, secret=True).secret == private.secret
    assert rules.told(private).secret is None
    assert rules.told(exposed(), secret=True).secret is None


def test_a_link_is_used_once() -> None:
    linked = rules.with_link(exposed(), "key", end=200.0, now=100.0)
    assert "key" not in str(linked.links)
    assert rules.without_link(linked, "other", now=150.0) is None
    assert rules.without_link(linked, "key", now=200.0) is None
    used = rules.without_link(linked, "key", now=150.0)
    assert used is not None
    assert rules.without_link(used, "key", now=150.0) is None


def test_links_that_nobody_uses_are_forgotten() -> None:
    linked = rules.with_link(exposed(), "old", end=110.0, now=100.0)
    linked = rules.with_link(linked, "new", end=300.0, now=200.0)
    assert list(linked.links) == [rules.hashed("new")]
    for number in range(rules.MAX_LINKS + 5):
        linked = rules.with_link(linked, str(number), end=300.0, now=200.0)
    assert len(linked.links) == rules.MAX_LINKS


@pytest.mark.parametrize(
    ("domains", "port", "hostname"),
    [(("localhost",), 8787, "localhost:8787"), ((), None, "localhost"), (("localhost",), None, "localhost"),
     (("Example.com", "localhost"), 8787, "example.com"), (("dev.localhost",), 1, "dev.localhost:1")],
)  # fmt: skip
def test_a_hostname_that_is_not_given(
    domains: tuple[str, ...], port: int | None, hostname: str
) -> None:
    assert rules.default_hostname(domains, port) == hostname
