import base64

import pytest

from atoll.network.gateway import injection
from atoll.network.gateway.injection import Misplaced
from atoll.network.policy import Secret
from atoll.wire.http1 import Fields

KEY = Secret("API_KEY", "atoll_secret_1", ("api.example", "*.api.example"), "v&l ue")
OTHER = Secret("OTHER", "atoll_secret_2", ("other.example",), "other")


def fill(
    fields: Fields,
    target: bytes = b"/",
    host: str = "api.example",
    *,
    encrypted: bool = True,
) -> injection.Filled:
    return injection.fill(target, fields, host, [KEY, OTHER], encrypted=encrypted)


def test_a_secret_is_put_into_header_values() -> None:
    found = fill([(b"Authorization", b"Bearer atoll_secret_1"), (b"A", b"b")])
    assert found.fields == [(b"Authorization", b"Bearer v&l ue"), (b"A", b"b")]
    assert found.used == ("API_KEY",)


def test_in_a_query_it_is_encoded() -> None:
    found = fill([], b"/p?key=atoll_secret_1&a=b")
    assert found.target == b"/p?key=v%26l%20ue&a=b"


def test_basic_authorization_is_decoded_for_it() -> None:
    pair = base64.b64encode(b"me:atoll_secret_1")
    found = fill([(b"authorization", b"basic " + pair)])
    assert found.fields == [
        (b"authorization", b"Basic " + base64.b64encode(b"me:v&l ue")),
    ]


def test_a_host_that_its_pattern_means_gets_it() -> None:
    assert fill([(b"A", b"atoll_secret_1")], host="eu.api.example").used == ("API_KEY",)


@pytest.mark.parametrize("host", ["evil.example", "other.example", "api.example.evil.example", ""])
@pytest.mark.parametrize(
    ("fields", "target"),
    [
        ([(b"A", b"x atoll_secret_1 y")], b"/"),
        ([(b"atoll_secret_1", b"x")], b"/"),
        ([], b"/?q=atoll_secret_1"),
        ([], b"/atoll_secret_1"),
        ([], b"/%61toll_secret_1"),
        ([(b"Authorization", b"Basic " + base64.b64encode(b"atoll_secret_1:x"))], b"/"),
    ],
)
def test_other_hosts_are_not_even_sent_the_placeholder(
    fields: Fields, target: bytes, host: str
) -> None:
    with pytest.raises(Misplaced, match="API_KEY") as caught:
        fill(fields, target, host)
    assert KEY.value not in str(caught.value)


def test_it_never_goes_out_unencrypted() -> None:
    with pytest.raises(Misplaced, match="HTTPS"):
        fill([(b"A", b"atoll_secret_1")], encrypted=False)


def test_a_value_that_would_end_the_header_is_refused() -> None:
    bad = Secret("BAD", "atoll_secret_3", ("api.example",), "a\r\nHost: evil.example")
    with pytest.raises(Misplaced, match="BAD"):
        injection.fill(b"/", [(b"A", b"atoll_secret_3")], "api.example", [bad], encrypted=True)


def test_a_request_without_placeholders_stays_as_it_is() -> None:
    fields = [(b"Authorization", b"Basic !"), (b"A", b"b")]
    found = fill(fields, b"/%zz?a", host="evil.example", encrypted=False)
    assert (found.target, found.fields, found.used) == (b"/%zz?a", fields, ())


def test_logs_show_neither_values_nor_placeholders() -> None:
    text = injection.redact("a v&l ue b atoll_secret_1 c", [KEY])
    assert text == "a [secret] b [secret] c"
