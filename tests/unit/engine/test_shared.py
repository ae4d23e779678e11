from typing import Any, cast

from atoll.engine.shared import Shared


def test_names_are_fresh_and_tell_their_engine() -> None:
    nothing = cast("Any", None)
    shared = Shared("e0", nothing, nothing, nothing, nothing, nothing, {}, {})
    names = {shared.new_name() for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith("e0-") for name in names)
