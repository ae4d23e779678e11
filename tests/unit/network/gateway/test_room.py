import pytest

from atoll.network.gateway.room import Full, Holding, Room


def test_what_one_has_is_not_for_another_and_comes_back() -> None:
    mine, yours, all_ = Room(10), Room(10), Room(15)
    with Holding(mine, all_) as held:
        held.add(4)
        held.add(6)
        with pytest.raises(Full):
            held.add(1)
        with Holding(yours, all_) as other:
            with pytest.raises(Full):
                other.add(6)
            other.add(5)
        assert (mine.held, yours.held, all_.held) == (10, 0, 10)
    assert (mine.held, all_.held) == (0, 0)
