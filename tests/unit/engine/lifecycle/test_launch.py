from datetime import UTC, datetime

import pytest

from atoll.engine.bare.parts import BareImage
from atoll.engine.lifecycle.launch import Launch, made
from atoll.engine.store.record import Record
from atoll.settings import INSTANCE_TYPES
from atoll.wire.sandbox import SandboxOptions, State

BOX = Record(
    namespace="N",
    id="box",
    state=State.STARTING,
    layer_id="l",
    created_at=datetime.fromtimestamp(1, UTC),
    host_ref="h",
)


def launch(**given: object) -> Launch:
    return Launch(BOX, SandboxOptions(), INSTANCE_TYPES["lite"], **given)  # type: ignore[arg-type]


def test_later_variables_win_and_none_unsets() -> None:
    found = launch(
        image=BareImage("host"),
        variables=({"A": "1", "B": "1"}, {"B": "2", "A": None}),
        trust_env={"CA": "/x"},
    )
    assert found.env == {"CA": "/x", "B": "2"}
    assert found.base_env == {"CA": "/x"}


def test_a_start_has_the_name_that_was_recorded() -> None:
    assert launch().host_ref == "h"


def test_what_no_step_made_yet_is_not_used() -> None:
    with pytest.raises(AssertionError):
        made(None)
    assert made(0) == 0
