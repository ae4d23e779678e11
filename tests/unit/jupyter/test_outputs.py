from typing import Any

import pytest

from atoll.jupyter.outputs import Cell, bundle, language
from atoll.wire.interpreter import Chart, CodeResult, ExecutionError
from atoll.wire.process import Stderr, Stdout


def test_forms_become_a_mime_bundle() -> None:
    shown = bundle(CodeResult(text="t", html="<b>", data={"application/x": 1}, json={"a": 1}))
    assert shown == {"text/plain": "t", "text/html": "<b>", "application/x": 1}
    assert bundle(CodeResult(json={"a": 1})) == {"application/json": {"a": 1}}
    assert bundle(CodeResult(json={"a": 1}, chart=Chart(type="line"))) == {}


def test_printed_pieces_are_one_output_until_something_is_shown() -> None:
    cell = Cell()
    for event in (
        Stdout(data=b"", text="a"),
        Stdout(data=b"", text="b"),
        Stderr(data=b"", text="e"),
        CodeResult(text="1"),
        Stdout(data=b"", text="c"),
    ):
        cell.add(event)
    cell.number(7)
    kinds = [output.get("text") or output.get("execution_count") for output in cell.outputs]
    assert kinds == ["ab", "e", 7, "c"]
    assert not cell.failed


def test_what_was_displayed_can_be_updated_and_cleared() -> None:
    cell = Cell()
    cell.add(CodeResult(type="display", text="1", display_id="x"))
    cell.add(CodeResult(type="update", text="2", display_id="x"))
    cell.add(CodeResult(type="update", text="3", display_id="other"))
    assert [output["data"] for output in cell.outputs] == [{"text/plain": "2"}]
    cell.add(CodeResult(type="clear"))
    assert cell.outputs == []


def test_an_error_fails_the_cell() -> None:
    cell = Cell()
    cell.add(ExecutionError(name="E", message="m", traceback=["t"]))
    assert cell.failed
    assert cell.outputs[0]["output_type"] == "error"


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, "python"),
        ({"kernelspec": {"name": "python3", "language": "python"}}, "python"),
        ({"kernelspec": {"name": "deno"}, "language_info": {"name": "typescript"}}, "typescript"),
    ],
)
def test_the_metadata_say_the_language(metadata: dict[str, Any], expected: str) -> None:
    assert language(metadata) == expected
