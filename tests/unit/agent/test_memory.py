import os

from atoll.agent.memory import OomCounter, oom_kills


def test_the_counter_is_read_in_both_formats() -> None:
    assert oom_kills(b"low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n") == 2
    assert oom_kills(b"oom_kill_disable 0\nunder_oom 0\noom_kill 7\n") == 7
    assert oom_kills(b"") == oom_kills(b"oom_kill x\n") == 0


def test_only_growth_since_the_mark_counts() -> None:
    fd = os.memfd_create("events")
    os.write(fd, b"oom_kill 4\n")
    counter = OomCounter(fd)
    counter.mark()
    assert not counter.grown
    os.pwrite(fd, b"oom_kill 5\n", 0)
    assert counter.grown
    os.close(fd)


def test_without_a_counter_nothing_was_killed() -> None:
    counter = OomCounter(None)
    counter.mark()
    assert not counter.grown
