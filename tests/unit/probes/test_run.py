from typing import Any

import pytest

from atoll.errors import NotSupportedByRuntimeError, SandboxError
from atoll.probes import run
from atoll.probes.catalogue import Probe
from atoll.probes.run import Finding, Verdict

PROBE = Probe(1, "about", "module.name", "nothing")


class Box:
    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    def probe(self, _: str) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Site:
    def __init__(self, outcome: Any, made: Exception | None = None) -> None:
        self.outcome, self.made = outcome, made

    def box(self) -> Box:
        if self.made:
            raise self.made
        return Box(self.outcome)


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [([], Verdict.PASS), (["x"], Verdict.FAIL), (SandboxError("y"), Verdict.ERROR),
     (ValueError("z"), Verdict.ERROR), (NotSupportedByRuntimeError("n"), Verdict.NOT_HERE)],
)  # fmt: skip
def test_what_a_probe_found_is_told(outcome: Any, verdict: Verdict) -> None:
    site: Any = Site(outcome)
    (finding,) = run.run(site, "container", [PROBE])
    assert finding.verdict is verdict
    assert bool(finding.seen) == (verdict is not Verdict.PASS)


def test_what_is_known_of_a_level_differs_and_fails_elsewhere() -> None:
    site: Any = Site(["syslog"])
    (known,), (found,) = (run.run(site, level, [PROBE]) for level in ("gvisor", "container"))
    assert (known.verdict, found.verdict) == (Verdict.DIFFERS, Verdict.FAIL)
    more: Any = Site(["syslog", "read /proc/1/mem"])
    (finding,) = run.run(more, "gvisor", [PROBE])
    assert (finding.verdict, finding.seen) == (Verdict.FAIL, ["read /proc/1/mem"])


def test_what_would_end_the_sandbox_of_a_level_is_not_tried_there() -> None:
    signals = Probe(9, "about", "boundary.signals", "nothing")
    site: Any = Site(["x"])
    (finding,) = run.run(site, "gvisor", [signals])
    assert finding.verdict is Verdict.NOT_HERE


def test_a_level_that_is_not_there_is_one_finding() -> None:
    site: Any = Site([], SandboxError("no such level"))
    (finding,) = run.run(site, "gvisor", [PROBE, PROBE])
    assert (finding.verdict, finding.seen) == (Verdict.NOT_HERE, ["no such level"])


def finding(verdict: Verdict) -> Finding:
    return Finding(number=1, probe="p", about="a", level="container", verdict=verdict)


def test_nothing_tried_or_a_probe_that_could_not_be_made_proves_nothing() -> None:
    good, absent = finding(Verdict.PASS), finding(Verdict.NOT_HERE)
    assert run.holds([good, absent])
    assert not run.holds([])
    assert not run.holds([absent])
    for bad in (Verdict.FAIL, Verdict.ERROR):
        assert not run.holds([good, finding(bad)])
