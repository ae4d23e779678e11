from datetime import UTC, datetime

import pytest

from atoll.engine.objects.due import Due, due
from atoll.engine.objects.table import Row
from atoll.engine.store.record import Record
from atoll.wire.sandbox import State

AT = datetime(2024, 1, 1, tzinfo=UTC)


def row(started: int, stopped: int, *, gone: bool = False) -> Row:
    return Row("u", "N", "box", gone, started, stopped)


def record(state: State, generation: int) -> Record:
    return Record(
        namespace="N", id="box", state=state, layer_id="l", created_at=AT, generation=generation
    )


@pytest.mark.parametrize(
    ("told", "now", "want"),
    [
        (row(0, 0), record(State.RUNNING, 1), Due("on_start", 1)),
        (row(0, 0), record(State.FROZEN, 1), Due("on_start", 1)),
        (row(0, 0), record(State.STARTING, 1), None),
        (row(1, 0), record(State.RUNNING, 1), None),
        (row(1, 0), record(State.FROZEN, 1), None),
        (row(1, 0), record(State.STOPPING, 1), None),
        (row(1, 0), record(State.STOPPED, 1), Due("on_stop", 1)),
        (row(1, 0), record(State.RUNNING, 3), Due("on_stop", 1)),
        (row(1, 0), None, Due("on_stop", 1)),
        (row(1, 1), record(State.STOPPED, 1), None),
        (row(1, 1), record(State.RUNNING, 3), Due("on_start", 3)),
        (row(0, 0), record(State.STOPPED, 1), None),
        (row(1, 0, gone=True), record(State.RUNNING, 2), Due("on_stop", 1)),
        (row(1, 1, gone=True), record(State.RUNNING, 2), Due("forget", 0)),
        (row(0, 0, gone=True), None, Due("forget", 0)),
        (row(0, 0), None, None),
    ],
)
def test_what_is_due_follows_from_the_record_and_what_was_told(
    told: Row, now: Record | None, want: Due | None
) -> None:
    """A start that nobody was told of has no end to tell; a told one always has."""
    assert due(told, now) == want
