import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.workers import jsonc

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_every_json_value_reads_as_the_standard_library_reads_it(value: object) -> None:
    text = json.dumps(value, allow_nan=False)
    assert jsonc.parse(text)[0] == json.loads(text)


def test_comments_and_trailing_commas_are_allowed() -> None:
    text = '{ // a comment\n "a": [1, 2,], /* another */ "url": "http://x",\n}'
    assert jsonc.parse(text)[0] == {"a": [1, 2], "url": "http://x"}


def test_every_value_knows_its_line_and_column() -> None:
    _, positions = jsonc.parse('{\n  "a": [10,\n    {"b": true}]\n}')
    assert positions["a", 0] == (2, 9)
    assert positions["a", 1, "b"] == (3, 11)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ('{"a" 1}', (1, 6)),
        ('{\n"a": tru}', (2, 6)),
        ("[1 2]", (1, 4)),
        ("", (1, 1)),
        ('{"a": 1} x', (1, 10)),
        ('["abc', (1, 2)),
        ('{"a": 1, "a": 2}', (1, 10)),
        ("\n/* never closed", (2, 1)),
        ("[" * 200, (1, 102)),
        ("{1: 2}", (1, 2)),
        ('"\\x"', (1, 2)),
    ],
)
def test_a_syntax_error_names_its_place(text: str, position: tuple[int, int]) -> None:
    with pytest.raises(jsonc.JsoncError) as caught:
        jsonc.parse(text)
    assert caught.value.position == position


@given(st.text())
def test_any_text_is_a_value_or_a_typed_error(text: str) -> None:
    try:
        jsonc.parse(text)
    except jsonc.JsoncError as error:
        assert error.position >= (1, 1)
