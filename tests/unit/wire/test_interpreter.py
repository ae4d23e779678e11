from datetime import UTC, datetime

import msgspec
import pytest

from atoll.wire.interpreter import (
    Chart,
    CodeResult,
    ExecutionError,
    ExecutionLogs,
    ExecutionResult,
    LateOutput,
    read_line,
)


def test_a_result_names_its_forms_and_leaves_out_the_others() -> None:
    shown = CodeResult(text="t", json=[1], chart=Chart(type="bar"), truncated={"html": 9})
    assert shown.formats() == ["text", "json", "chart"]
    told = shown.to_dict()
    assert (told["chart"]["type"], told["truncated"]) == ("bar", {"html": 9})
    assert "html" not in told


def test_the_flat_view_prefers_what_can_be_seen() -> None:
    results = [
        CodeResult(text="t", png="AA=="),
        CodeResult(text="t", html="<b>"),
        CodeResult(text="t"),
        CodeResult(),
    ]
    whole = ExecutionResult(
        code="c", logs=ExecutionLogs(stdout=["a", "b"]), results=results,
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    assert whole.outputs == [
        {"type": "text", "content": "ab"},
        {"type": "image", "content": "AA=="},
        {"type": "html", "content": "<b>"},
        {"type": "text", "content": "t"},
    ]
    assert whole.text is None
    assert whole.to_dict()["outputs"] == whole.outputs


def test_success_is_the_absence_of_an_error() -> None:
    whole = ExecutionResult(
        code="", logs=ExecutionLogs(), error=ExecutionError(name="E", message="m"),
        results=[CodeResult(text="1"), CodeResult(type="display", text="2")],
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    assert not whole.success
    assert whole.text == "1"
    assert whole.error is not None
    assert whole.error.value == "m"


def test_lines_are_read_by_their_type() -> None:
    shown = read_line(b'{"type": "result", "png": "AA==", "chart": {"type": "line"}}')
    assert isinstance(shown, CodeResult)
    assert shown.chart is not None
    assert shown.chart.image == "AA=="
    assert isinstance(read_line(b'{"type": "error", "name": "E"}'), ExecutionError)
    late = read_line(b'{"type": "late", "name": "stdout", "text": "x", "executionCount": 2}')
    assert late == LateOutput(name="stdout", text="x", execution_count=2)
    assert read_line(b'{"type": "of a later version"}') is None


@pytest.mark.parametrize(
    "line", [b"", b"{}", b'{"type": "error"}', b'{"type": "result", "text": 3}']
)
def test_what_user_code_forges_is_refused(line: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        read_line(line)
