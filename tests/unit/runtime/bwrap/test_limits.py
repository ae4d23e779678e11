from pathlib import Path

from atoll.runtime.bwrap import limits

SCORES = {1: 0, 2: 0, 10: 500, 11: 500, 12: 500}


def test_the_largest_commands_are_ended_until_the_rest_fit() -> None:
    sizes = {1: 10, 2: 10, 10: 300, 11: 200, 12: 100}
    assert limits.victims(sizes, SCORES, 0, 1_000) == []
    assert limits.victims(sizes, SCORES, 0, 320) == [10]
    assert limits.victims(sizes, SCORES, 0, 200) == [10, 11]


def test_the_agent_and_its_supervisors_are_never_ended() -> None:
    """They have the score of the first process, which no command can get."""
    sizes = {1: 900, 2: 800, 10: 5}
    assert limits.victims(sizes, SCORES, 0, 100) == [10]


def test_where_the_first_process_has_a_score_commands_have_a_higher_one() -> None:
    """systemd gives what a user starts a score of its own."""
    assert limits.victims({1: 50, 2: 50}, {1: 200, 2: 700}, 200, 60) == [2]


def test_an_agent_whose_score_was_raised_inside_protects_no_command() -> None:
    """It is like a command itself then: who did that ends its own sandbox."""
    assert limits.victims({1: 10, 2: 900}, {1: 1000, 2: 500}, 0, 100) == [2]


def test_kills_are_counted_as_the_kernel_tells_them_of_a_cgroup(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    assert limits.kills(events) == 0
    limits.make_events(events)
    assert (events.read_bytes(), limits.kills(events)) == (b"oom_kill 0\n", 0)
