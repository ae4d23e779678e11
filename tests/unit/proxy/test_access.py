"""Who may visit a private preview."""

import pytest

from atoll.proxy import access
from atoll.proxy.access import Access, Verdict
from atoll.wire.http1 import Fields, Request, RequestReader

OPEN = Access(public=True, auth=None, secret="s" * 32)
EITHER = Access(public=False, auth=None, secret="s" * 32)
BEARER = EITHER._replace(auth="bearer")
COOKIE = EITHER._replace(auth="cookie")
HEADER: Fields = [(b"Authorization", b"Bearer " + b"s" * 32)]


def cookie(place: Access = EITHER, now: float = 1_000.0, *, secure: bool = False) -> Fields:
    value = access.new_cookie(place, secure=secure, now=now).partition(b";")[0]
    return [(b"Cookie", b"other=1; " + value)]


def passes(place: Access, fields: Fields, now: float = 1_000.0) -> bool:
    return access.judge(place, fields, now) is Verdict.PASS


def test_everybody_visits_a_public_one() -> None:
    assert passes(OPEN, [])


def test_a_private_one_takes_what_it_was_told_to() -> None:
    assert [passes(place, HEADER) for place in (EITHER, BEARER, COOKIE)] == [True, True, False]
    assert [passes(place, cookie()) for place in (EITHER, BEARER, COOKIE)] == [True, False, True]
    assert not passes(EITHER, [])


@pytest.mark.parametrize(
    "header", [b"Bearer wrong", b"Basic " + b"s" * 32, b"Bearer", b"s" * 32, b""]
)
def test_a_wrong_header(header: bytes) -> None:
    assert not passes(EITHER, [(b"authorization", header)])


def test_a_cookie_ends() -> None:
    assert passes(EITHER, cookie(), 1_000.0 + access.COOKIE_TIME - 1)
    assert not passes(EITHER, cookie(), 1_000.0 + access.COOKIE_TIME + 1)


def test_a_cookie_of_one_preview_is_worth_nothing_at_another() -> None:
    assert not passes(EITHER, cookie(EITHER._replace(secret="t" * 32)))


@pytest.mark.parametrize("value", [b"", b".", b"9999999999.", b"9999999999.00", b"x.y", b"1" * 99])
def test_a_forged_cookie(value: bytes) -> None:
    assert not passes(EITHER, [(b"cookie", access.COOKIE + b"=" + value)])


def test_a_cookie_over_tls_belongs_to_its_host_alone() -> None:
    value = access.new_cookie(EITHER, secure=True)
    assert value.startswith(b"__Host-atoll-preview=")
    assert {b" Secure", b" HttpOnly", b" SameSite=Lax", b" Path=/"} <= set(value.split(b";"))
    assert b"Secure" not in access.new_cookie(EITHER, secure=False)
    assert passes(EITHER, cookie(secure=True))


def told(place: Access, fields: Fields) -> Fields:
    """Return the fields that the server inside gets."""
    written = b"".join(b"%b: %b\r\n" % field for field in fields)
    head = RequestReader().feed(b"GET / HTTP/1.1\r\nHost: h\r\n" + written + b"\r\n")[0]
    assert isinstance(head, Request)
    return access.without_credentials(place, head).fields[1:]


def test_the_server_inside_never_sees_what_lets_visitors_in() -> None:
    fields = [*HEADER, (b"authorization", b"Basic x"), *cookie(), (b"Cookie", b"z=1"), (b"X", b"y")]
    assert told(EITHER, fields) == [
        (b"authorization", b"Basic x"), (b"Cookie", b"other=1"), (b"Cookie", b"z=1"), (b"X", b"y"),
    ]  # fmt: skip
    alone = [(b"Cookie", cookie()[0][1].removeprefix(b"other=1; "))]
    assert told(EITHER, alone) == []
    assert told(OPEN, alone) == []


def test_a_public_preview_gets_the_visitors_own_bearer_header() -> None:
    assert told(OPEN, HEADER) == HEADER


@pytest.mark.parametrize(
    ("path", "key"),
    [(b"/.atoll/enter/" + b"a" * 32, b"a" * 32), (b"/.atoll/enter/" + b"a" * 32 + b"?x=1", b"a" * 32),
     (b"/.atoll/enter/short", None), (b"/x/.atoll/enter/" + b"a" * 32, None)],
)  # fmt: skip
def test_links(path: bytes, key: bytes | None) -> None:
    found = access.ENTER.fullmatch(path)
    assert (found[1] if found else None) == key
