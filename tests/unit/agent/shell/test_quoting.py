"""Words of the shell, written and read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.agent.shell.quoting import MalformedError, quote, quote_text, read_word

VALUES = st.binary(max_size=60).map(lambda value: value.replace(b"\0", b""))


@given(VALUES)
def test_what_is_written_is_read_back(value: bytes) -> None:
    assert read_word(quote(value), 0) == (value, len(quote(value)))
    assert read_word(quote_text(value), 0)[0] == value


@given(VALUES)
def test_a_quoted_value_takes_no_line_of_its_own(value: bytes) -> None:
    assert b"\n" not in quote(value)


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        (b"'it'\\''s'", b"it's"),
        (b'"a\\$b\\`c\\"d\\\\e\\n"', b'a$b`c"d\\e\\n'),
        (b'"one\\\ntwo"', b"onetwo"),
        (b'"raw\nline"', b"raw\nline"),
        (b"$'a\\nb\\tc\\E\\001\\377\\''", b"a\nb\tc\x1b\x01\xff'"),
        (b"$'\\x41\\u00e9\\cA'", b"A\xc3\xa9\x01"),
        (b"a\\ b'c'\"d\"$", b"a bcd$"),
        (b"''", b""),
    ],
)
def test_every_form_in_which_bash_prints_a_word_is_read(printed: bytes, value: bytes) -> None:
    assert read_word(printed, 0) == (value, len(printed))


@pytest.mark.parametrize("end", [b" ", b"\n", b")", b"]", b"("])
def test_a_word_ends_where_the_shell_ends_it(end: bytes) -> None:
    assert read_word(b"xab" + end + b"c", 1) == (b"ab", 3)


@pytest.mark.parametrize("open_quote", [b"'a", b'"a', b'"a\\"', b"$'a\\'", b"$'a\\"])
def test_a_quote_that_is_not_closed_is_malformed(open_quote: bytes) -> None:
    with pytest.raises(MalformedError):
        read_word(open_quote, 0)
