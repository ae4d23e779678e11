from atoll.engine.lifecycle.variables import difference, effective


def test_later_layers_win_and_none_unsets() -> None:
    assert effective({"A": "1", "B": "1", "C": "1"}, {"A": "2", "B": None}, {"B": "3"}) == {
        "A": "2",
        "B": "3",
        "C": "1",
    }
    assert effective({"A": "1"}, {"A": None}) == {}


def test_a_difference_makes_the_one_of_the_other() -> None:
    told, now = {"A": "1", "B": "1", "C": "1"}, {"A": "1", "B": "2", "D": "1"}
    changed = difference(told, now)
    assert changed == {"B": "2", "C": None, "D": "1"}
    assert effective(told, changed) == now
