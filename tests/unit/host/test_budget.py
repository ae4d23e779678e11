import pytest

from atoll.errors import RateLimitedError
from atoll.host.budget import Budget


def test_all_bodies_together_have_a_budget_that_is_given_back() -> None:
    budget = Budget(10)
    with budget.share() as one, budget.share() as other:
        one.take(6)
        other.take(4)
        with pytest.raises(RateLimitedError):
            other.take(1)
    assert budget.taken == 0
    with budget.share() as one:
        one.take(7)
        with pytest.raises(RateLimitedError):
            one.take(7)
    assert budget.taken == 0


def test_what_is_held_may_shrink() -> None:
    budget = Budget(10)
    with budget.share() as one:
        one.hold(8)
        one.hold(3)
        with budget.share() as other:
            other.hold(7)
        with pytest.raises(RateLimitedError):
            one.hold(11)
    assert budget.taken == 0


def test_a_part_of_a_budget_is_taken_from_both() -> None:
    whole = Budget(10)
    one, other = Budget(6, whole), Budget(6, whole)
    with one.share() as first, other.share() as second:
        first.take(6)
        second.take(4)
        with pytest.raises(RateLimitedError):
            second.take(1)
        with pytest.raises(RateLimitedError):
            first.take(1)
        assert (one.taken, other.taken, whole.taken) == (6, 4, 10)
    assert (one.taken, other.taken, whole.taken) == (0, 0, 0)
