from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from atoll.engine.lifecycle import lives
from atoll.engine.store.record import Record
from atoll.errors import StaleHandleError
from atoll.wire.sandbox import State

BOX = Record(
    namespace="N", id="box", state=State.STOPPED, layer_id="l1", created_at=datetime.now(UTC)
)


def test_the_life_that_is_meant_is_served_whatever_it_does() -> None:
    for state in set(State) - {State.DESTROYED}:
        lives.check("box", lives.of(BOX), replace(BOX, state=state, generation=9))
    lives.check("box", None, None)


@pytest.mark.parametrize(
    "record", [None, replace(BOX, state=State.DESTROYED), replace(BOX, layer_id="l2")]
)
def test_another_life_is_none_of_the_callers(record: Record | None) -> None:
    with pytest.raises(StaleHandleError):
        lives.check("box", lives.of(BOX), record)


def test_what_is_meant_is_so_for_that_sandbox_only() -> None:
    lives.note("N", "box", "a")
    assert (lives.meant("N", "box"), lives.meant("N", "fork")) == ("a", None)
    lives.note("N", "box", None)
    assert lives.meant("N", "box") is None
