"""An agent that ends by itself when nobody renews its lease."""

import json
import math
import socket
from typing import Any

import pytest

from atoll import errors
from atoll.agent.answer import Request
from atoll.agent.lease import Lease
from atoll.agent.loop import Loop


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Held:
    def __init__(self, seconds: float) -> None:
        self.clock, self.loop, self.ended = Clock(), Loop(), 0
        self.lease = Lease(self.loop, seconds, self._end, self.clock)

    def _end(self) -> None:
        self.ended += 1

    def renew(self, until: Any = None) -> dict[str, Any]:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self.lease.renew(Request(ours, {"op": "lease", "until": until}, []))
            return dict(json.loads(theirs.recv(4096)[5:]))


@pytest.fixture
def held() -> Held:
    return Held(15)


def test_it_ends_one_lease_after_what_it_told_last(held: Held) -> None:
    told = held.renew()
    held.clock.now += 10
    held.renew(told["now"] + told["lease"])
    held.clock.now += 4.9
    held.lease.check()
    assert not held.ended
    held.clock.now += 0.1
    held.lease.check()
    assert held.ended


def test_a_renewal_that_was_under_way_for_long_extends_nothing(held: Held) -> None:
    first = held.renew()["now"]
    held.clock.now += 10
    second = held.renew(first + 15)["now"]
    held.renew(second + 15)
    held.renew(first + 15)
    held.clock.now += 14.9
    held.lease.check()
    assert not held.ended


@pytest.mark.parametrize("until", [math.nan, math.inf, 1015.1, 1e300])
def test_a_time_that_it_never_told_is_refused(held: Held, until: float) -> None:
    with pytest.raises(errors.ValidationFailedError):
        held.renew(until)
    held.clock.now += 15
    held.lease.check()
    assert held.ended


def test_without_a_lease_it_never_ends() -> None:
    held = Held(0)
    held.clock.now += 1e9
    held.lease.check()
    assert not held.ended


def test_the_clock_is_looked_at_while_nothing_happens() -> None:
    held = Held(0.05)
    held.clock.now += 0.05
    while not held.ended:
        held.loop.step()
