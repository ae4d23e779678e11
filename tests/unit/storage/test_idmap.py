from pathlib import Path

import pytest

from atoll.errors import ContainerUnavailableError
from atoll.storage.idmap import IDS_END, IdRanges, id_map

BASE, COUNT = 0x7000_0000, 65_536


@pytest.fixture
def claims(tmp_path: Path) -> Path:
    return tmp_path / "claims"


def ranges(claims: Path, engine: str = "one", base: int = BASE) -> IdRanges:
    return IdRanges(base, COUNT, engine, claims)


def test_the_map_covers_the_range_and_the_hosts_root() -> None:
    assert id_map(500_000, 65_536) == "0 500000 65536\n65536 0 1\n"


def test_sandboxes_get_ranges_that_do_not_overlap(claims: Path) -> None:
    ids = ranges(claims)
    assert [ids.acquire(ref) for ref in "abc"] == [BASE, BASE + COUNT, BASE + 2 * COUNT]


def test_the_same_sandbox_gets_the_same_range_again(claims: Path) -> None:
    assert ranges(claims).acquire("a") == ranges(claims).acquire("a")


def test_two_engines_of_a_host_never_share_a_range(claims: Path) -> None:
    """Processes with equal host ids share limits and keyrings across containers."""
    first, second = ranges(claims, "one"), ranges(claims, "two")
    assert len({first.acquire("a"), second.acquire("a"), first.acquire("b")}) == 3


def test_a_released_range_is_used_again(claims: Path) -> None:
    ids = ranges(claims)
    ids.acquire("a")
    ids.release("a")
    ids.release("a")
    assert ids.acquire("b") == BASE


def test_a_new_engine_keeps_the_ranges_in_use_and_frees_its_others(claims: Path) -> None:
    for engine, ref in (("one", "a"), ("one", "b"), ("two", "c")):
        ranges(claims, engine).acquire(ref)
    ids = ranges(claims)
    ids.keep_only(["b"])
    assert ids.acquire("b") == BASE + COUNT
    assert ids.acquire("new") == BASE
    assert ids.acquire("newer") == BASE + 3 * COUNT


def test_an_adopted_range_is_not_given_away(claims: Path) -> None:
    ids = ranges(claims)
    ids.adopt("a", BASE)
    assert ids.acquire("b") == BASE + COUNT
    assert ids.acquire("a") == BASE


def test_no_range_left_is_an_error_that_says_so(claims: Path) -> None:
    ids = ranges(claims, base=IDS_END - 2 * COUNT)
    ids.acquire("a")
    with pytest.raises(ContainerUnavailableError) as caught:
        ids.acquire("b")
    assert caught.value.context["reason"] == "capacity"
