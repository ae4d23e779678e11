import pytest

from atoll.engine.idranges import HOST_IDS_END, IdRanges
from atoll.errors import ContainerUnavailableError


def test_ranges_never_overlap_and_are_used_again() -> None:
    ranges = IdRanges(1_000, 100)
    assert [ranges.acquire(name) for name in ("a", "b", "a")] == [1_000, 1_100, 1_000]
    ranges.release("a")
    ranges.release("a")
    assert ranges.acquire("c") == 1_000


def test_adopted_ranges_are_not_given_away() -> None:
    ranges = IdRanges(1_000, 100)
    ranges.adopt("old", 1_000)
    assert ranges.acquire("new") == 1_100


def test_the_end_of_the_ids_is_a_typed_error() -> None:
    ranges = IdRanges(HOST_IDS_END - 150, 100)
    ranges.acquire("a")
    with pytest.raises(ContainerUnavailableError) as caught:
        ranges.acquire("b")
    assert caught.value.context["reason"] == "capacity"
