import datetime as dt
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.agent.interpreter.kernels.atoll_kernel.plain import MAX_ITEMS, encodable, plain, text

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
)


@given(ANY)
def test_every_value_becomes_strict_json(value: Any) -> None:
    json.dumps(plain(value), allow_nan=False)


def test_what_json_lacks_is_replaced() -> None:
    assert plain({"a": math.nan, "b": b"\x00", 3: {1}}) == {"a": None, "b": "AA==", "3": [1]}
    assert plain(dt.date(2020, 1, 2)) == "2020-01-02"
    assert plain(1 << 70) == str(1 << 70)


def test_circles_depth_and_size_end() -> None:
    circle: list[Any] = []
    circle.append(circle)
    assert plain(circle) == ["…"]
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    assert "…" in json.dumps(plain(deep), ensure_ascii=False)
    assert len(plain(list(range(MAX_ITEMS * 2)))) == MAX_ITEMS
    assert len(plain({str(n): n for n in range(MAX_ITEMS * 2)})) == MAX_ITEMS


class Hostile:
    tolist = dtype = property(lambda self: 1 / 0)

    def __repr__(self) -> str:
        raise KeyError


class Number(int):
    pass


class Array:
    dtype = "x"

    def tolist(self) -> list[int]:
        return [1]


@pytest.mark.parametrize(("value", "expected"), [(Number(3), 3), (Array(), [1])])
def test_relatives_of_plain_values_are_plain(value: Any, expected: Any) -> None:
    assert plain(value) == expected


def test_a_hostile_object_has_a_text_all_the_same() -> None:
    assert "KeyError" in plain(Hostile())
    assert text(type("Odd", (), {"__repr__": lambda self: "x"})()) == "x"


def test_long_texts_are_cut_and_half_characters_replaced() -> None:
    assert text("x" * 50, 10) == "'xxxxxxxxx…"
    assert encodable("a\ud800") == "a?"
