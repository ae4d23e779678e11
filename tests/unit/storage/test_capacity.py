from hypothesis import given
from hypothesis import strategies as st

from atoll.storage.capacity import Space, is_worth_setting, store_limit

GB = 10**9
SIZES = st.integers(min_value=0, max_value=10**15)


def limit(used: int, free: int, allocated: int = 0) -> int:
    return store_limit(used=used, allocated=allocated, free=free, reserve=GB)


def test_layers_may_take_what_is_free_less_the_reserve() -> None:
    assert limit(used=3 * GB, free=10 * GB) == 12 * GB


def test_a_full_disk_takes_nothing_away_from_what_is_stored() -> None:
    assert limit(used=3 * GB, free=GB // 2) == 3 * GB


def test_blocks_of_deleted_files_are_there_to_be_written_again() -> None:
    assert limit(used=GB, free=0, allocated=64 * GB) == 63 * GB


def test_small_changes_on_an_empty_disk_cost_no_transaction() -> None:
    assert not is_worth_setting(100 * GB, 99 * GB, free=80 * GB, reserve=GB)
    assert is_worth_setting(100 * GB, 80 * GB, free=80 * GB, reserve=GB)


@given(current=SIZES, used=SIZES, free=SIZES, reserve=st.integers(min_value=1, max_value=10**12))
def test_a_limit_that_is_left_alone_never_promises_more_than_the_disk_has(
    current: int, used: int, free: int, reserve: int
) -> None:
    wanted = store_limit(used, 0, free, reserve)
    if free <= 8 * reserve and not is_worth_setting(current, wanted, free, reserve):
        assert current <= used + max(free, reserve)


def test_what_a_store_holds_without_use_is_less_its_own_trees() -> None:
    assert Space(size=100_000, taken=64_000, used=10_000).idle == 53_000
    assert Space(size=100_000, taken=64_000, used=63_500).idle == 0
