"""What every match of an expression holds: too much asked for would hide matches."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.agent.files.needles import MAX_NEEDLES, Needles, of_expression


@pytest.mark.parametrize(
    ("expression", "texts"),
    [
        (r"needle", [b"needle"]),
        (r"\bneedle\d+\b", [b"needle"]),
        (r"ab+cde", [b"cde"]),
        (r"(needle|pin)\d", [b"needle", b"pin"]),
        (r"x(?:a|bc)yz", [b"yz"]),
        (r"(?:abc){2,}", [b"abc"]),
        (r"(?>abc)\d", [b"abc"]),
        ("größe\\s", ["größe".encode()]),
        (r"one\ntwo2", [b"two2"]),
        (r"(?x) one   two2  # text", [b"onetwo2"]),
        (r"a(?=bcd)", [b"a"]),
        (r"a(?!bcd)", [b"a"]),
    ],
)
def test_what_no_match_can_do_without_is_found(expression: str, texts: list[bytes]) -> None:
    assert of_expression(re.compile(expression)) == Needles(tuple(texts))


@pytest.mark.parametrize(
    "expression",
    [r"\d+", "a*", "(abc)?", "(?:abc|d*)", "", ".", "[ab]c?", "\ufffd", "(?!abc)", "(?=abc)",
     "(?i:é)", "|".join(map(chr, range(0x4E00, 0x4E00 + 2 * MAX_NEEDLES))) + "|aa"],
)  # fmt: skip
def test_nothing_is_asked_where_nothing_is_sure(expression: str) -> None:
    assert of_expression(re.compile(expression)) is None


def test_ignoring_case_leaves_out_letters_with_relatives_outside_ascii() -> None:
    assert of_expression(re.compile("(?i)Kernel4Task")) == Needles((b"ernel4ta",), any_case=True)
    assert of_expression(re.compile("(?i)ABC")) == Needles((b"abc",), any_case=True)
    assert of_expression(re.compile("(?i:abc)")) is None
    assert Needles((b"abc",), any_case=True).are_in(b"xxAbCx")
    assert not Needles((b"abc",)).are_in(b"xxAbCx")


_KELVIN, _LONG_S = b"\xe2\x84\xaa", b"\xc5\xbf"
_ATOM = st.sampled_from(
    [
        "a",
        "b",
        "K",
        "s",
        "é",
        "\ufffd",
        r"\d",
        r"\w",
        ".",
        "[ab]",
        "[^a]",
        r"\s",
        r"\b",
        "^",
        "$",
        "\n",
    ]
)
_EXPRESSION = st.recursive(
    _ATOM,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "*?"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
        inner.map(lambda one: f"(?i:{one})"),
        inner.map(lambda one: f"(?={one})"),
    ),
    max_leaves=8,
)
_CONTENT = st.lists(
    st.sampled_from([b"a", b"b", b"A", b"k", b"K", _KELVIN, b"s", _LONG_S, "é".encode(),
                     "É".encode(), b"\xff", b"\xc3", b"\n", b" ", b"1"]),
    max_size=12,
).map(b"".join)  # fmt: skip


@given(_EXPRESSION, st.booleans(), _CONTENT)
def test_no_file_with_a_match_is_left_out(text: str, any_case: bool, content: bytes) -> None:
    expression = re.compile(text, re.MULTILINE | (re.IGNORECASE if any_case else 0))
    needles = of_expression(expression)
    if needles is not None and expression.search(content.decode("utf-8", "replace")):
        assert needles.are_in(content)
