import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.errors import ValidationFailedError
from atoll.wire import values
from atoll.wire.base import Result
from atoll.wire.process import ExecResult

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.binary() | st.datetimes(timezones=st.just(UTC)) | st.timedeltas().map(
        lambda delta: timedelta(seconds=round(delta.total_seconds()))
    )
)  # fmt: skip
DATA = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner)
        | st.dictionaries(st.integers() | st.just("$"), inner)
    ),
    max_leaves=20,
)  # fmt: skip


def over_the_wire(value: Any) -> Any:
    return values.decode(msgspec.json.decode(msgspec.json.encode(values.encode(value))))


@given(DATA)
def test_data_comes_back_as_it_was(value: Any) -> None:
    assert over_the_wire(value) == value


def test_results_of_the_sdk_come_back_as_results() -> None:
    result = ExecResult(exit_code=3, stdout_bytes=b"\xff", timestamp=datetime.now(UTC))
    assert over_the_wire({"it": [result]}) == {"it": [result]}


def test_what_json_has_no_number_for_comes_back() -> None:
    assert math.isnan(over_the_wire(float("nan")))
    assert over_the_wire([-math.inf, 2**300, True]) == [-math.inf, 2**300, True]
    assert over_the_wire({1, "a"}) == {1, "a"}


class Foreign(Result, frozen=True, kw_only=True):
    text: str


@pytest.mark.parametrize(
    "value", [object(), len, {"a": [object()]}, "\ud800", {"\ud800": 1}, Foreign(text="x"), 1j]
)
def test_what_is_no_data_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ValidationFailedError, match="argument 1"):
        values.encode(value, "argument 1 of f")


def test_what_contains_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(ValidationFailedError, match="nested"):
        values.encode(ring)


@pytest.mark.parametrize(
    "data",
    [{"$": "bytes"}, {"$": "bytes", "v": "?"}, {"$": "int", "v": []}, {"$": [], "v": 1},
     {"$": "time", "v": "soon"}, {"$": "ExecResult", "v": 1}, {"$": "map", "v": [[[], 1]]}],
)  # fmt: skip
def test_malformed_data_is_a_typed_error(data: Any) -> None:
    with pytest.raises(ValidationFailedError):
        values.decode(data)


def test_a_result_of_a_newer_version_is_its_wire_form() -> None:
    assert values.decode({"$": "ResultOfTomorrow", "v": {"a": 1}}) == {"a": 1}


def test_data_of_any_depth_that_can_be_encoded_can_be_decoded() -> None:
    value: Any = None
    for _ in range(values.MAX_DEPTH - 1):
        value = {"a": value}
    assert over_the_wire(value) == value
    assert json.dumps(values.encode(value))
