from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import UNSET

from atoll import errors
from atoll.sdk import _code
from atoll.wire.code_stream import Collector
from atoll.wire.interpreter import ExecutionComplete
from atoll.wire.process import Failed, Started, Stdout

RESULT = Collector().result("c", None, datetime(2026, 1, 1, tzinfo=UTC))


def test_a_request_has_the_default_time_unless_another_is_given() -> None:
    def limit(timeout: Any, default: int | None = 60_000) -> int | None:
        return _code.run_request("1", None, None, None, timeout, None, default).timeout_ms

    assert [limit(UNSET), limit("2s"), limit(None), limit(UNSET, None)] == [
        60_000,
        2000,
        None,
        None,
    ]


def test_code_is_text() -> None:
    with pytest.raises(errors.ValidationFailedError):
        _code.run_request(b"1", None, None, None, None, None)  # type: ignore[arg-type]


class Frame:
    def __init__(self, missing: bool = False) -> None:
        self.missing = missing

    def to_parquet(self, target: Any) -> None:
        if self.missing:
            raise ImportError("no pyarrow")
        target.write(b"PAR1")


def test_variables_travel_in_the_form_of_their_type() -> None:
    given = {"a": {"b": (1, None)}, "raw": memoryview(b"\x00"), "frame": Frame()}
    assert _code.variable_forms(given) == {
        "a": {"json": {"b": [1, None]}},
        "raw": {"bytes": "AA=="},
        "frame": {"parquet": "UEFSMQ=="},
    }
    assert _code.variable_forms(None) == {}


@pytest.mark.parametrize("given", [
    {"no name": 1}, {1: 1}, {"a": object()}, {"a": Frame(missing=True)}, [1], 1,
])  # fmt: skip
def test_what_cannot_travel_is_refused_by_name(given: Any) -> None:
    with pytest.raises(errors.ValidationFailedError):
        _code.variable_forms(given)


def test_too_much_is_refused_before_it_is_sent() -> None:
    with pytest.raises(errors.FileTooLargeError):
        _code.variable_forms({"a": b"x" * (5 << 20)})


@pytest.mark.parametrize(
    ("end", "failed", "kind"),
    [
        (ExecutionComplete(timed_out=True), None, errors.TimeoutError),
        (ExecutionComplete(cancelled=True), None, errors.OperationInterruptedError),
        (None, None, errors.OperationInterruptedError),
        (None, Failed(error={"code": "KERNEL_DIED"}), errors.KernelDiedError),
    ],
)
def test_every_end_but_a_good_one_is_an_error_with_the_result(
    end: ExecutionComplete | None, failed: Failed | None, kind: type[errors.SandboxError]
) -> None:
    with pytest.raises(kind) as failure:
        _code.check(RESULT, end, failed)
    assert failure.value.result is RESULT
    assert _code.check(RESULT, ExecutionComplete(), None) is RESULT


def test_events_without_a_shape_are_left_out() -> None:
    assert _code.sse(Started(pid=1)) == b""
    assert _code.sse(Stdout(data=b"a", text="a")) == b'data: {"type":"stdout","text":"a"}\n\n'
