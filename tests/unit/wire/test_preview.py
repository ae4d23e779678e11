import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.wire import preview


def test_port_id_and_token_are_read_from_the_host_name() -> None:
    assert preview.parse("8080-my-box-tok_1.example.com") == (
        8080,
        "my-box",
        "tok_1",
        "example.com",
    )


def test_case_and_trailing_dot_do_not_matter() -> None:
    assert preview.parse("8080-BOX-Tok.Example.COM.") == (8080, "box", "tok", "example.com")


@pytest.mark.parametrize(
    "host",
    [
        "",
        "example.com",
        "8080-box-tok",
        "8080-box-tok.",
        "8080-box-tok.example.com..",
        "8080-box-tok..example.com",
        "80-box-tok.example.com",
        "99999-box-tok.example.com",
        "08080-box-tok.example.com",
        "8080--box-tok.example.com",
        "8080-box--tok.example.com",
        "8080-box-.example.com",
        "8080-box-token_is_too_long.example.com",
        f"8080-{'a' * 41}-tok.example.com",
        "8080-box-t\nok.example.com",
        "www.8080-box-tok.example.com",
        "1\u066100-box-tok.example.com",
        "8080-bo\u212a-tok.example.com",
    ],
)
def test_anything_else_is_not_a_preview(host: str) -> None:
    assert preview.parse(host) is None


@given(
    st.integers(1024, 65535),
    st.from_regex(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", fullmatch=True),
    st.from_regex(r"[a-z0-9_]{1,16}", fullmatch=True),
)
def test_every_valid_combination_reads_back_and_fits_a_label(
    port: int, sandbox_id: str, token: str
) -> None:
    host = f"{port}-{sandbox_id}-{token}.h.example"
    assert preview.parse(host) == (port, sandbox_id, token, "h.example")
    assert len(host.split(".", maxsplit=1)[0]) <= 63
