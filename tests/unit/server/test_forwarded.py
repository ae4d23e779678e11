import pytest
from starlette.datastructures import Headers

from atoll.errors import InvalidConfigError
from atoll.server.forwarded import Origin, networks, origin

PROXY = "10.0.0.1"
TRUSTED = networks(["10.0.0.0/24", "::1"])


def asked(peer: str | None, *hops: str, proto: str | None = None) -> Origin:
    raw = [(b"x-forwarded-for", hop.encode()) for hop in hops]
    if proto is not None:
        raw.append((b"x-forwarded-proto", proto.encode()))
    return origin(peer, "http", Headers(raw=raw), TRUSTED)


def test_what_a_stranger_writes_does_not_count() -> None:
    assert asked("203.0.113.9", "192.0.2.1", proto="https") == ("203.0.113.9", "http")
    assert asked(None, "192.0.2.1", proto="https") == (None, "http")


def test_a_proxy_of_ours_is_believed() -> None:
    assert asked(PROXY, "192.0.2.1", proto="https") == ("192.0.2.1", "https")
    assert asked("::ffff:10.0.0.1", "192.0.2.1") == ("192.0.2.1", "http")
    assert asked("::1", "2001:db8::1") == ("2001:db8::1", "http")


@pytest.mark.parametrize(
    "hops",
    [
        ("198.51.100.1, 192.0.2.1",),
        ("198.51.100.1", "192.0.2.1"),
        ("198.51.100.1, 192.0.2.1, 10.0.0.2",),
        ("nonsense, 192.0.2.1",),
    ],
)
def test_only_what_our_own_proxies_appended_counts(hops: tuple[str, ...]) -> None:
    """What stands before it the caller may have sent himself."""
    assert asked(PROXY, *hops).client == "192.0.2.1"


@pytest.mark.parametrize("hops", [(), ("",), ("nonsense",), ("192.0.2.1, unknown",), ("a:b",)])
def test_without_a_sensible_list_the_proxy_itself_is_the_caller(hops: tuple[str, ...]) -> None:
    assert asked(PROXY, *hops) == (PROXY, "http")


@pytest.mark.parametrize("proto", ["", "ftp", "javascript", "https, http"])
def test_other_schemes_do_not_count(proto: str) -> None:
    assert asked(PROXY, "192.0.2.1", proto=proto).scheme == "http"


def test_a_network_that_is_none_is_an_error_at_the_start() -> None:
    with pytest.raises(InvalidConfigError):
        networks(["10.0.0.0/33"])
