import pytest

from atoll.engine.storage.claims import Claims
from atoll.engine.store.record import Mounted
from atoll.errors import VolumeInUseError

OWN = Mounted(name="own", layer_id="l1")
SHARED = Mounted(name="shared", layer_id="l2", shared=True)
READ = Mounted(name="read", layer_id="l3", read_only=True)


def test_a_volume_has_one_user_unless_it_is_shared_or_read_only() -> None:
    claims = Claims()
    claims.take("s1", "a", [OWN, SHARED, READ])
    claims.take("s2", "b", [SHARED, READ])
    with pytest.raises(VolumeInUseError) as caught:
        claims.take("s3", "c", [SHARED, OWN])
    assert caught.value.context == {"volume": "own", "sandboxes": ["a"]}
    assert claims.users("l2") == ["a", "b"], "of a refused start nothing is held"


def test_what_a_start_had_is_free_when_it_is_gone() -> None:
    claims = Claims()
    claims.take("s1", "a", [OWN])
    claims.release("s1")
    claims.release("s1")
    claims.take("s2", "b", [OWN])
    assert claims.users("l1") == ["b"]


def test_a_start_that_repeats_its_claim_is_no_second_user() -> None:
    claims = Claims()
    claims.take("s1", "a", [OWN])
    claims.take("s1", "a", [OWN])
    assert claims.users("l1") == ["a"]


def test_what_ran_on_through_a_restart_keeps_its_volumes() -> None:
    claims = Claims()
    claims.adopt("s1", "a", ["l1"])
    with pytest.raises(VolumeInUseError):
        claims.take("s2", "b", [OWN])
