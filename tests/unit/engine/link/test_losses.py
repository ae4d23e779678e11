from typing import Any

import pytest

from atoll.engine.link import losses
from atoll.engine.store.record import CONTAINER_ENDED, Record, now
from atoll.errors import OperationInterruptedError, SandboxDestroyedError, StaleHandleError
from atoll.wire.sandbox import State


def record(state: State, generation: int = 1, reason: str = "") -> Record:
    return Record(
        namespace="N", id="box", state=state, layer_id="l", created_at=now(),
        generation=generation, reason=reason,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "transition", "expected"),
    [
        (None, None, SandboxDestroyedError),
        (record(State.DESTROYED), None, SandboxDestroyedError),
        (record(State.RUNNING), "destroy", SandboxDestroyedError),
        (record(State.RUNNING), "stop", OperationInterruptedError),
        (record(State.STOPPED), None, OperationInterruptedError),
        (record(State.RUNNING, 2), None, StaleHandleError),
        (record(State.RUNNING, 2), "start", StaleHandleError),
    ],
)
def test_what_happened_to_the_sandbox_is_told(
    found: Record | None, transition: str | None, expected: type[Exception]
) -> None:
    error = losses.known("box", found, transition, 1, "detail")
    assert type(error) is expected


def test_a_loss_without_a_known_reason_is_not_given_one() -> None:
    assert losses.known("box", record(State.RUNNING), None, 1, "detail") is None
    assert losses.known("box", record(State.RUNNING), None, None, "detail") is None


@pytest.mark.parametrize(
    ("found", "transition", "reason"),
    [
        (record(State.STOPPED), None, "stopped"),
        (record(State.STOPPING), "stop", "stopped"),
        (record(State.STOPPED, reason=CONTAINER_ENDED), None, "container"),
        (record(State.RUNNING), "stop", "container"),
    ],
)
def test_a_container_that_ended_by_itself_was_not_stopped(
    found: Record, transition: str | None, reason: str
) -> None:
    """Its end may be noticed, and cleaned up after, before its calls are told."""
    error = losses.known("box", found, transition, 1, "detail")
    assert error is not None
    assert error.context["reason"] == reason


@pytest.mark.parametrize("found", [record(State.FROZEN), record(State.RUNNING)])
def test_what_a_freeze_cut_is_told_so_also_when_the_sandbox_runs_again(found: Record) -> None:
    error = losses.known("box", found, None, 1, "detail", frozen=True)
    assert error is not None
    assert (error.code, error.context["reason"]) == ("OPERATION_INTERRUPTED", "frozen")
    gone = losses.known("box", record(State.DESTROYED), None, 1, "detail", frozen=True)
    assert isinstance(gone, SandboxDestroyedError)


@pytest.mark.parametrize(("gone", "reason"), [(True, "container"), (False, "agent")])
def test_an_unknown_outcome_is_an_error_and_says_so(gone: bool, reason: str) -> None:
    error: Any = losses.unknown("box", "detail", gone=gone)
    assert error.context == {"sandbox": "box", "detail": "detail", "reason": reason}
    assert "not known" in error.suggestion
    assert not error.retryable
