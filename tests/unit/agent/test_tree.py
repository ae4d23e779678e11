from atoll.agent.tree import Origin, below, members, origin_in


def test_the_origin_is_read_whatever_the_name_is() -> None:
    assert origin_in(b"12 (a) S 5 12 13 0") == Origin(5, 13)
    assert origin_in(b"12 (x) R 9 (\n) S 7 12 13 0") == Origin(7, 13)


def test_a_cut_line_has_no_origin() -> None:
    assert origin_in(b"12 (a") is None
    assert origin_in(b"") is None


def test_orphans_of_the_sessions_below_are_members_too() -> None:
    """gVisor has no subreapers: they are children of pid 1 there."""
    origins = {
        2: Origin(1, 1),
        10: Origin(2, 10),
        11: Origin(1, 10),  # an orphan of the command
        12: Origin(11, 12),  # and what it started, in a session of its own
        20: Origin(1, 20),  # an orphan of another
        1: Origin(0, 1),
    }
    assert members(2, origins) == [10, 11, 12]
    del origins[10]
    assert members(2, origins) == []
    assert members(2, origins, 10) == [11, 12]


def test_a_stub_in_the_session_of_the_agent_makes_nobody_else_a_member() -> None:
    """Just forked it has not left that session yet, and every supervisor is in it."""
    origins = {
        1: Origin(0, 1),
        2: Origin(1, 1),  # the supervisor
        3: Origin(2, 1),  # its stub
        4: Origin(1, 1),  # another supervisor
        40: Origin(4, 40),  # and its command
    }
    assert members(2, origins, agents=1) == [3]


def test_everything_below_is_found_parents_first() -> None:
    parents = {1: 0, 2: 1, 3: 2, 4: 2, 5: 4, 9: 8, 8: 1}
    assert below(2, parents) == [3, 4, 5]
    assert set(below(1, parents)) == {2, 8, 3, 4, 9, 5}
    assert below(5, parents) == []


def test_a_cycle_made_by_reused_pids_ends() -> None:
    assert set(below(1, {2: 1, 3: 2, 1: 3})) == {2, 3, 1}
