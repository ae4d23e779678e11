from atoll.agent.tree import below, parent_in


def test_the_parent_is_read_whatever_the_name_is() -> None:
    assert parent_in(b"12 (a) S 5 12 12 0") == 5
    assert parent_in(b"12 (x) R 9 (\n) S 7 12 12 0") == 7


def test_a_cut_line_has_no_parent() -> None:
    assert parent_in(b"12 (a") is None
    assert parent_in(b"") is None


def test_everything_below_is_found_parents_first() -> None:
    parents = {1: 0, 2: 1, 3: 2, 4: 2, 5: 4, 9: 8, 8: 1}
    assert below(2, parents) == [3, 4, 5]
    assert set(below(1, parents)) == {2, 8, 3, 4, 9, 5}
    assert below(5, parents) == []


def test_a_cycle_made_by_reused_pids_ends() -> None:
    assert set(below(1, {2: 1, 3: 2, 1: 3})) == {2, 3, 1}
