"""Beginning and end of a call: `atoll.agent.files.dispatch` itself."""

import importlib

import pytest

from atoll import errors
from atoll.agent.files import dispatch
from atoll.wire import ops
from integration.agent.files_calls import Call, call

ENGINES = {"backup", "place", "restore"}
"""Steps of the engine's own operations: no caller has them."""


@pytest.mark.parametrize("name", dispatch.OPERATIONS)
def test_every_operation_is_in_the_table_of_the_wire_and_has_its_function(name: str) -> None:
    assert name in {op.name for op in ops.TABLE} | ENGINES
    module = importlib.import_module(f"atoll.agent.files.{dispatch.OPERATIONS[name]}")
    assert callable(getattr(module, name))


def test_every_file_operation_of_the_wire_is_here() -> None:
    told = {op.name for op in ops.TABLE if op.path.startswith(ops.FILES)}
    assert told == set(dispatch.OPERATIONS) - ENGINES


@pytest.mark.parametrize("name", ["nope", "", "__class__", "read_file.x"])
def test_an_unknown_operation_is_typed(name: str) -> None:
    with pytest.raises(errors.ValidationFailedError):
        call(name, path="/")


@pytest.mark.parametrize("name", dispatch.OPERATIONS)
def test_a_request_without_its_fields_is_typed(name: str) -> None:
    with pytest.raises(errors.ValidationFailedError):
        call(name)


def test_a_fault_of_ours_is_an_internal_error_without_details(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("atoll.agent.files.changes.exists", lambda *_: 1 // 0)
    with pytest.raises(errors.InternalError) as caught:
        call("exists", path="/")
    assert "division" not in str(caught.value)
    assert "ZeroDivisionError" in capfd.readouterr().err  # the agent's log has it


def test_a_caller_that_is_gone_before_the_answer_is_no_fault() -> None:
    running = Call("exists", path="/")
    running.finish()
