import math

from atoll.engine.cluster import renewals
from atoll.engine.cluster.renewals import MARGIN, NOTHING, Peer, Renewals, Told


def peer(**changes: object) -> Peer:
    return Peer(heard=100.0, left=False, alive=True, told=NOTHING)._replace(**changes)  # type: ignore[arg-type]


def test_a_renewal_names_what_the_agent_told_and_never_more() -> None:
    """Else one that was under way for long would extend a lease that others count as over."""
    known = Renewals()
    assert known.begin("r", 15, at=0.0) is None
    known.answered("r", 1000.0, at=5.0)
    assert known.begin("r", 15, at=0.0) == 1015.0
    assert known.over("r", 15) == 5.0 + 15 * MARGIN


def test_what_is_stopped_stays_stopped_whatever_answers_come_late() -> None:
    known = Renewals()
    known.begin("r", 15, at=0.0)
    known.answered("r", 1000.0, at=5.0)
    assert known.stop("r", at=6.0)
    assert not known.stop("r", at=6.0)
    known.answered("r", 1010.0, at=15.0)
    assert not known.may("r")
    assert known.told(at=8.0)["stopped"] == {"r": 3.0}


def test_a_start_is_suspect_when_its_lease_is_nearly_over_and_no_more_once_it_answers() -> None:
    known = Renewals()
    known.begin("r", 20, at=0.0)
    known.answered("r", 1000.0, at=0.0)
    assert known.failed("r", at=3.0)
    assert not known.failed("r", at=6.0)
    assert not known.suspect("r", 20, at=15.0)
    assert known.suspect("r", 20, at=16.0)
    assert known.answered("r", 1017.0, at=17.0)
    assert not known.suspect("r", 20, at=40.0)


def test_one_that_never_answered_here_is_suspect_from_its_first_failure_on() -> None:
    known = Renewals()
    known.failed("r", at=10.0)
    assert not known.suspect("r", 20, at=25.0)
    assert known.suspect("r", 20, at=26.0)


def test_the_first_lease_of_an_agent_that_never_answered_is_waited_out() -> None:
    """It began to run with the agent, whoever asks it."""
    known = Renewals()
    known.begin("r", 15, at=5.0)
    known.failed("r", at=7.0)
    known.begin("r", 15, at=10.0)
    known.stop("r", at=20.0)
    assert known.over("r", 15) == 5.0 + 15 * MARGIN


def test_one_that_was_stopped_before_it_was_asked_may_have_just_begun() -> None:
    known = Renewals()
    known.stop("r", at=20.0)
    assert known.over("r", 15) == 20.0 + 15 * MARGIN


def test_nobody_fences_what_another_replica_that_lives_reaches() -> None:
    unreached = Told({}, frozenset({"r"}))
    assert not renewals.reached_by_none("r", [peer(told=unreached), peer()])
    assert renewals.reached_by_none("r", [peer(told=unreached), peer(alive=False), peer(left=True)])


def test_one_that_lives_and_has_not_said_that_it_stopped_is_waited_for_however_long() -> None:
    assert renewals.over("r", 15, peer(), now=5000.0) > 5000.0


def test_what_a_replica_renewed_counts_from_when_its_agent_answered() -> None:
    told = Told({"r": 4.0}, frozenset())
    assert renewals.over("r", 15, peer(told=told), now=101.0) == 96.0 + 15 * MARGIN
    never = Told({"r": None}, frozenset())
    assert renewals.over("r", 15, peer(told=never), now=101.0) == -math.inf


def test_one_that_fell_silent_may_have_renewed_for_a_lease_more() -> None:
    dead = peer(alive=False)
    assert renewals.over("r", 15, dead, now=101.0) == 100.0 + 30 * MARGIN
    assert renewals.over("r", 15, peer(left=True), now=101.0) == 100.0 + 15 * MARGIN


def test_what_is_told_is_read_by_the_others() -> None:
    known = Renewals()
    known.failed("a", at=1.0)
    known.stop("b", at=1.0)
    assert renewals.read(known.told(at=2.0)) == Told({"b": None}, frozenset({"a"}))
    assert renewals.read({"later": 1}) == NOTHING


def test_starts_that_are_over_are_forgotten() -> None:
    known = Renewals()
    known.stop("old", at=0.0)
    known.keep(["new"])
    assert known.told(at=0.0)["stopped"] == {}
