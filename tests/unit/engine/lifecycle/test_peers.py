from atoll.engine.lifecycle.peers import Alone
from atoll.wire.sandbox import SandboxOptions


def test_what_an_engine_alone_finds_under_way_was_left_by_one_that_died() -> None:
    assert not Alone().alive("anybody")
    assert Alone().note_step(SandboxOptions()) == 1.0
