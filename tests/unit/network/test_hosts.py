import ipaddress
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.errors import ValidationFailedError
from atoll.network import hosts

_LABELS = st.from_regex(r"[a-z0-9_]([a-z0-9_-]{0,8}[a-z0-9_])?", fullmatch=True)
_NAMES = st.lists(_LABELS, min_size=1, max_size=4).map(lambda labels: ".".join([*labels, "test"]))
_PATTERNS = st.text("ab.*", min_size=1, max_size=12).map(lambda text: f"{text}*")


@pytest.mark.parametrize(
    "notation",
    ["127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7F.1", "0177.0.0.1",
     "127.0.0.1.", "[::ffff:127.0.0.1]", "::ffff:7f00:1", "64:ff9b::7f00:1", "::127.0.0.1",
     "0:0:0:0:0:FFFF:7F00:0001", "0x7f.0.0.0x1"],
)  # fmt: skip
def test_every_notation_of_an_address_is_the_address(notation: str) -> None:
    assert hosts.canonical_host(notation) == "127.0.0.1"


@given(st.ip_addresses(v=4))
def test_an_address_is_itself_in_all_notations(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    for text in (str(address), str(number), hex(number), oct(number).replace("o", "", 1)):
        assert hosts.address(text) == address


@pytest.mark.parametrize(
    ("text", "name"),
    [("EXAMPLE.com", "example.com"), ("example.com.", "example.com"),
     ("BÜCHER.example", "xn--bcher-kva.example"), ("a_b.example", "a_b.example"),
     ("\uff45xample.com", "example.com")],
)  # fmt: skip
def test_a_name_has_one_form(text: str, name: str) -> None:
    assert hosts.canonical_host(text) == name


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "a..b", "example.com..", "a b", "a\0.example", "user@example.com", "exa%6dple",
     "-a.example", "a-.example", "a" * 64 + ".example", "b." * 127 + "example", "1.2.3.4.5",
     "256.1.1.1", "1.2.3.08", "example.0x7f", "fe80::1%eth0", "[::1", "\uff1a", "\uff11.0.0.1",
     "example.com:80", "http://example.com", "example.com/", "*.example.com", "a,b", "a\n.example"],
)  # fmt: skip
def test_what_is_no_host_goes_nowhere(text: str) -> None:
    assert hosts.canonical_host(text) is None
    assert hosts.canonical_name(text) is None


@given(_NAMES)
def test_the_one_form_stays_as_it_is(name: str) -> None:
    assert hosts.canonical_name(name) == name
    assert hosts.canonical_name(name.upper() + ".") == name


@given(st.text())
def test_any_text_is_a_host_or_none(text: str) -> None:
    found = hosts.canonical_host(text)
    assert found is None or hosts.canonical_host(found) == found


@pytest.mark.parametrize(
    ("authority", "host"),
    [("a.example:80", "a.example"), ("a.example", "a.example"), ("[2001:db8::1]:80", "2001:db8::1"),
     ("[2001:db8::1]", "2001:db8::1"), ("a:b", "a:b"), ("u@a:80", "u@a"), ("a:80:90", "a:80"),
     ("[a]:80", "[a]:80"), ("a:\uff18", "a:\uff18"), ("a:", "a")],
)  # fmt: skip
def test_the_port_of_a_host_header_is_set_apart(authority: str, host: str) -> None:
    assert hosts.split_port(authority) == host


@pytest.mark.parametrize(
    ("pattern", "canonical"),
    [("*.Example.COM.", "*.example.com"), ("*", "*"), ("bücher.example", "xn--bcher-kva.example"),
     ("*.bücher.example", "*.xn--bcher-kva.example"), ("10.1.2.3/8", "10.0.0.0/8"),
     ("0x7f.1", "127.0.0.1"), ("::ffff:10.0.0.0/104", "10.0.0.0/8"), ("api-*", "api-*"),
     ("2001:DB8::/32", "2001:db8::/32"), (" a.example ", "a.example")],
)  # fmt: skip
def test_a_pattern_has_one_form(pattern: str, canonical: str) -> None:
    assert hosts.canonical_pattern(pattern) == canonical


@pytest.mark.parametrize(
    "pattern",
    ["", "https://example.com", "example.com/path", "example.com:443", "10.*", "*.1", "a b", "..",
     "*..example", "10.0.0.0/99", "*.bü*.example", "a\0*", "[::1]:80"],
)  # fmt: skip
def test_what_is_no_pattern_is_told(pattern: str) -> None:
    """A pattern that silently means nothing would open or close the wrong thing."""
    with pytest.raises(ValidationFailedError):
        hosts.canonical_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "host", "meant"),
    [("*.example.com", "a.b.example.com", True), ("*.example.com", "example.com", False),
     ("*.example.com", "evilexample.com", False), ("*example.com", "evilexample.com", True),
     ("*", "a.test", True), ("*", "93.184.216.34", False), ("a*a", "a", False), ("a*a", "aa", True),
     ("10.0.0.0/8", "10.1.1.1", True), ("10.0.0.0/8", "a.test", False), ("10.0.0.0/8", "::1", False),
     ("api.*.test", "api.a.b.test", True), ("api.*.test", "api.test", False)],
)  # fmt: skip
def test_stars_mean_names_and_ranges_mean_addresses(pattern: str, host: str, meant: bool) -> None:
    assert hosts.matches(pattern, host) is meant


@given(_PATTERNS, st.text("ab.", max_size=14))
def test_a_star_matches_what_a_search_by_parts_finds(pattern: str, host: str) -> None:
    def slow(pattern: str, host: str) -> bool:
        if not pattern:
            return not host
        if pattern[0] == "*":
            return any(slow(pattern[1:], host[at:]) for at in range(len(host) + 1))
        return bool(host) and host[0] == pattern[0] and slow(pattern[1:], host[1:])

    short = pattern.replace("**", "*")
    assert hosts.matches(pattern, host) is slow(short, host)


def test_many_stars_take_no_long_time() -> None:
    """Patterns come from callers, names from sandboxes."""
    before = time.process_time()
    assert not hosts.matches("*a" * 120 + "*b", "a" * 253)
    assert time.process_time() - before < 0.5


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1", "100.100.100.200", "127.0.0.1", "169.254.169.254", "172.31.0.1", "192.168.1.1",
     "224.0.0.1", "255.255.255.255", "0.0.0.0", "198.18.0.1", "::1", "::", "fe80::1",
     "fd00:ec2::254", "fc00::1", "ff02::1", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe",
     "64:ff9b:1::1", "2002:a9fe:a9fe::1", "2001::1"],
)  # fmt: skip
def test_what_is_not_the_public_internet_is_closed(address: str) -> None:
    found = hosts.address(address)
    assert found is not None
    assert hosts.is_closed(found)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1", "64:ff9b::808:808"])
def test_the_public_internet_is_open(address: str) -> None:
    found = hosts.address(address)
    assert found is not None
    assert not hosts.is_closed(found)


def test_the_operator_opens_ranges() -> None:
    address = ipaddress.ip_address("::ffff:10.1.2.3")
    assert not hosts.is_closed(address, ("10.1.0.0/16",))
    assert hosts.is_closed(address, ("10.2.0.0/16",))
