import pytest

from atoll.errors import RateLimitedError
from atoll.proxy import guesses
from atoll.proxy.guesses import MISSES, WINDOW, Guesses


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def missed(counter: Guesses, address: str, times: int = MISSES) -> None:
    for _ in range(times):
        counter.check(address, "box")
        counter.miss(address, "box")


def test_guessing_ends_after_some_misses_and_may_go_on_later() -> None:
    clock = Clock()
    counter = Guesses(clock)
    missed(counter, "1.2.3.4")
    clock.now += 10
    with pytest.raises(RateLimitedError) as refused:
        counter.check("1.2.3.4", "box")
    assert refused.value.retry_after == WINDOW - 10
    clock.now += WINDOW
    missed(counter, "1.2.3.4", MISSES - 1)
    counter.check("1.2.3.4", "box")


def test_neither_other_visitors_nor_other_sandboxes_are_hurt() -> None:
    counter = Guesses(Clock())
    missed(counter, "1.2.3.4")
    counter.check("1.2.3.5", "box")
    counter.check("1.2.3.4", "other")


def test_a_visitor_of_ipv6_has_a_whole_network() -> None:
    counter = Guesses(Clock())
    missed(counter, "2001:db8::1")
    with pytest.raises(RateLimitedError):
        counter.check("2001:db8::2", "box")
    missed(counter, "::ffff:1.2.3.4")
    with pytest.raises(RateLimitedError):
        counter.check("1.2.3.4", "box")
    missed(counter, "")
    with pytest.raises(RateLimitedError):
        counter.check("", "box")


def test_what_is_counted_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guesses, "KNOWN", 2)
    counter = Guesses(Clock())
    for address in ("1.1.1.1", "2.2.2.2", "3.3.3.3"):
        missed(counter, address)
    counter.check("1.1.1.1", "box")
    with pytest.raises(RateLimitedError):
        counter.check("3.3.3.3", "box")
