from typing import Any

import pytest

from atoll.engine import losses
from atoll.engine.record import Record, now
from atoll.errors import OperationInterruptedError, SandboxDestroyedError, StaleHandleError
from atoll.wire.sandbox import State


def record(state: State, generation: int = 1) -> Record:
    return Record(
        namespace="N", id="box", state=state, layer_id="l", created_at=now(), generation=generation
    )


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


@pytest.mark.parametrize(("gone", "reason"), [(True, "container"), (False, "agent")])
def test_an_unknown_outcome_is_an_error_and_says_so(gone: bool, reason: str) -> None:
    error: Any = losses.unknown("box", "detail", gone=gone)
    assert error.context == {"sandbox": "box", "detail": "detail", "reason": reason}
    assert "not known" in error.suggestion
    assert not error.retryable
