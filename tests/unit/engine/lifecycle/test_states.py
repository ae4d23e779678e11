from atoll.engine.lifecycle.states import LIVE, NEXT, may_follow
from atoll.wire.sandbox import State


def test_every_state_has_successors_and_can_be_destroyed() -> None:
    assert set(NEXT) == set(State)
    for state in set(State) - {State.DESTROYED}:
        assert may_follow(state, State.DESTROYED)


def test_only_a_new_life_leaves_the_tombstone() -> None:
    assert NEXT[State.DESTROYED] == {State.CREATED, State.STARTING, State.RUNNING}


def test_only_what_never_ran_gets_a_warm_container() -> None:
    """A sandbox with files wakes with them, by a start of its own."""
    ran = {State.STOPPED, State.STOPPING}
    assert not any(may_follow(state, State.RUNNING) for state in ran)


def test_a_container_is_never_started_twice() -> None:
    for state in LIVE - {State.STARTING}:
        assert not may_follow(state, State.STARTING)


def test_a_state_may_stay() -> None:
    assert all(may_follow(state, state) for state in State)
    assert not may_follow(State.CREATED, State.FROZEN)
