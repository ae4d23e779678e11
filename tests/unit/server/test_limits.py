import pytest

from atoll.errors import RateLimitedError
from atoll.server.auth import OWNER, Caller
from atoll.server.limits import BURST, KEEP, Limits
from atoll.settings import ServerSettings
from atoll.wire.keys import Scope


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def limits(clock: Clock, rate: float = 10.0, concurrency: int = 2) -> Limits:
    return Limits(ServerSettings(key_rate=rate, key_concurrency=concurrency), clock)


def caller(id: str = "k", **own: float) -> Caller:
    return Caller(Scope.RUN, id=id, **own)  # type: ignore[arg-type]


def ask(found: Limits, who: Caller) -> None:
    with found.entered(who):
        pass


def test_a_key_has_its_rate_a_burst_of_it_and_is_told_when_to_come_again() -> None:
    clock = Clock()
    found = limits(clock)
    for _ in range(int(10 * BURST)):
        ask(found, caller())
    with pytest.raises(RateLimitedError) as refused:
        ask(found, caller())
    assert refused.value.retry_after == pytest.approx(0.1)
    assert refused.value.context == {"limit": 10.0, "of": "rate"}
    clock.now += 0.11
    ask(found, caller())
    with pytest.raises(RateLimitedError):
        ask(found, caller())


def test_one_key_does_not_use_up_what_another_has() -> None:
    found = limits(Clock(), rate=0.5)
    ask(found, caller("a"))
    with pytest.raises(RateLimitedError):
        ask(found, caller("a"))
    ask(found, caller("b"))


def test_requests_under_way_are_counted_until_they_end() -> None:
    found = limits(Clock())
    with found.entered(caller()):
        with found.entered(caller()), pytest.raises(RateLimitedError) as refused:
            ask(found, caller())
        assert refused.value.context == {"limit": 2, "of": "concurrency"}
        ask(found, caller())


def test_a_request_that_fails_is_no_longer_under_way() -> None:
    found = limits(Clock(), concurrency=1)
    with pytest.raises(ValueError, match="x"), found.entered(caller()):
        raise ValueError("x")
    ask(found, caller())


def test_a_key_may_have_limits_of_its_own() -> None:
    found = limits(Clock())
    who = caller(rate=0.1, concurrency=1)
    with found.entered(who), pytest.raises(RateLimitedError):
        ask(found, who)
    with pytest.raises(RateLimitedError):
        ask(found, who)


def test_the_owner_has_no_limits() -> None:
    found = limits(Clock(), rate=0.1, concurrency=1)
    for _ in range(100):
        with found.entered(caller(OWNER)):
            ask(found, caller(OWNER))


def test_buckets_of_keys_that_went_away_are_forgotten() -> None:
    clock = Clock()
    found = limits(clock)
    for number in range(KEEP):
        ask(found, caller(f"k{number}"))
    clock.now += BURST + 1
    ask(found, caller("one more"))
    assert len(found._buckets) == 1
