"""What a replica knows of the leases that it renews, and what it tells the other replicas. Pure.

A renewal names a point of the agent's clock that an earlier answer told. So its effect ends one lease
after that answer came, however long it is under way: by the replica's own clock, that is a bound of
what the agent may still do. Clocks are never compared, only their rates are trusted, up to `MARGIN`.

A start may be replaced when every replica has stopped renewing it, and said so, and all their bounds
are over. A replica that says nothing any more has stopped by itself: it renews only while its own
lease at the cluster's API is young, which is what the others see.

Nobody renews the first lease of an agent: it runs from its start, which was before a replica knew of
it. So it is over one lease after that, for one that never answered, too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

MARGIN: Final = 1.15
"""By how much the clock of one node may run faster than another's: kernels slew by 10 % at most."""

SUSPECT: Final = 0.8
"""Part of a lease that a start is out of reach before it is fenced: till its end nothing is lost."""

ROUNDS: Final = 6
"""Renewals within one lease."""


@dataclass(slots=True)
class Renewal:
    """What one replica did for one start. Times are of its monotonic clock."""

    since: float  # when it was first asked, or stopped: its agent ran by then
    agent_now: float | None = None
    answered: float | None = None  # when the agent told that
    failing: float | None = None  # since when it does not answer
    stopped: bool = False


class Told(NamedTuple):
    """What a replica says to the others."""

    stopped: Mapping[str, float | None]  # start → seconds since the agent answered; None: never
    unreached: frozenset[str]  # starts that it tries to reach in vain


NOTHING: Final = Told({}, frozenset())


def read(said: Any) -> Told:
    """Return what another replica, perhaps a newer one, says."""
    return Told(dict(said.get("stopped", {})), frozenset(said.get("unreached", ())))


class Peer(NamedTuple):
    """Another replica, as last heard of."""

    heard: float  # when its own lease was seen to be renewed
    left: bool  # it said goodbye, and renews nothing
    alive: bool
    told: Told


class Renewals:
    """The starts of which a replica knows."""

    def __init__(self) -> None:
        self._known: dict[str, Renewal] = {}

    def begin(self, host_ref: str, lease: float, at: float) -> float | None:
        """Return what to name in the next renewal; None: the agent has not been asked yet."""
        one = self._of(host_ref, at)
        return None if one.agent_now is None else one.agent_now + lease

    def answered(self, host_ref: str, agent_now: float, at: float) -> bool:
        """The agent told its time; return whether it had not answered before.

        What was stopped meanwhile stays so.
        """
        one = self._known.get(host_ref)
        if one is None or one.stopped:
            return False
        back = one.failing is not None
        one.agent_now, one.answered, one.failing = agent_now, at, None
        return back

    def failed(self, host_ref: str, at: float) -> bool:
        """The agent did not answer; return whether that is news."""
        one = self._of(host_ref, at)
        news = one.failing is None
        one.failing = at if one.failing is None else one.failing
        return news

    def stop(self, host_ref: str, at: float) -> bool:
        """Renew it no more; return whether that is news."""
        one = self._of(host_ref, at)
        news, one.stopped = not one.stopped, True
        return news

    def may(self, host_ref: str) -> bool:
        """Whether it may be renewed."""
        one = self._known.get(host_ref)
        return one is None or not one.stopped

    def failing(self, host_ref: str) -> bool:
        """Whether it did not answer the last time."""
        one = self._known.get(host_ref)
        return one is not None and one.failing is not None

    def keep(self, host_refs: Iterable[str]) -> None:
        """Forget all others."""
        kept = set(host_refs)
        self._known = {name: one for name, one in self._known.items() if name in kept}

    def suspect(self, host_ref: str, lease: float, at: float) -> bool:
        """Whether it has been out of reach for so long that its lease is nearly over."""
        one = self._known.get(host_ref)
        if one is None or one.failing is None:
            return False
        since = one.failing if one.answered is None else one.answered
        return at - since >= lease * SUSPECT

    def over(self, host_ref: str, lease: float) -> float:
        """Return when the effect of the own renewals, and the agent's first lease, are over."""
        one = self._known.get(host_ref)
        if one is None:
            return float("-inf")
        return (one.since if one.answered is None else one.answered) + lease * MARGIN

    def told(self, at: float) -> dict[str, Any]:
        """Return what to say to the others; see `read`."""
        stopped = {
            name: None if one.answered is None else round(at - one.answered, 3)
            for name, one in self._known.items() if one.stopped
        }  # fmt: skip
        unreached = [
            name for name, one in self._known.items() if one.failing is not None and not one.stopped
        ]
        return {"stopped": stopped, "unreached": sorted(unreached)}

    def _of(self, host_ref: str, at: float) -> Renewal:
        return self._known.setdefault(host_ref, Renewal(at))


def reached_by_none(host_ref: str, peers: Iterable[Peer]) -> bool:
    """Whether no other replica that lives reaches a start."""
    living = (peer for peer in peers if peer.alive and not peer.left)
    return all(host_ref in peer.told.unreached or host_ref in peer.told.stopped for peer in living)


def over(host_ref: str, lease: float, peer: Peer, now: float) -> float:
    """Return when the effect of *peer*'s renewals is over; where it still renews, later than *now*.

    What it told was true when it wrote that, which was before it was heard.
    """
    if host_ref in peer.told.stopped:
        age = peer.told.stopped[host_ref]
        return float("-inf") if age is None else peer.heard - age + lease * MARGIN
    if peer.left:
        return peer.heard + lease * MARGIN
    # It renews for one lease after its own was renewed for the last time.
    silent = peer.heard + 2 * lease * MARGIN
    return max(silent, now + 0.1) if peer.alive else silent
