import os

from atoll.agent.counters import counted, oom_kills, refused_processes


def test_the_counter_is_read_in_all_formats() -> None:
    v2 = b"low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"
    assert counted(v2, b"oom_kill") == 2
    assert counted(b"oom_kill_disable 0\nunder_oom 0\noom_kill 7\n", b"oom_kill") == 7
    assert counted(b"max 9\n", b"max") == 9
    assert counted(b"", b"max") == counted(b"max x\n", b"max") == 0


def test_only_growth_since_the_mark_counts() -> None:
    fd = os.memfd_create("events")
    os.write(fd, b"oom_kill 4\n")
    counter = oom_kills(fd)
    counter.mark()
    assert not counter.grown
    os.pwrite(fd, b"oom_kill 5\n", 0)
    assert counter.grown
    os.close(fd)


def test_without_a_counter_nothing_was_killed() -> None:
    counter = oom_kills(None)
    counter.mark()
    assert not counter.grown


def test_each_looks_at_its_own_line() -> None:
    fd = os.memfd_create("events")
    os.write(fd, b"max 1\noom_kill 1\n")
    kills, refused = oom_kills(fd), refused_processes(fd)
    for counter in (kills, refused):
        counter.mark()
    os.pwrite(fd, b"max 2\n", 0)
    assert (kills.grown, refused.grown) == (False, True)
    os.close(fd)
