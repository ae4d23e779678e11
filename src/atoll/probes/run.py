"""Runs probes at each isolation level there is here, and says what was seen."""

import importlib
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import partial

import httpx2
import msgspec

from atoll.errors import NotSupportedByRuntimeError, SandboxError
from atoll.probes import differences
from atoll.probes.catalogue import Probe
from atoll.probes.site import Site

LEVELS = ("container", "gvisor", "bwrap")

_SEEN = 20
"""Violations that are told of one probe."""


class Verdict(StrEnum):
    """What came of a probe. `ERROR` is that it could not be made, and no proof of anything."""

    PASS = "pass"  # noqa: S105  # no password
    FAIL = "fail"
    ERROR = "error"
    NOT_HERE = "not here"
    DIFFERS = "differs"  # found something, all of it known of the level and no way out


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One probe at one level. `seen`: what could be done although it must not, or why it was not run.

    `fails_with`: the weakness with which it was shown to fail.
    """

    number: int
    probe: str
    about: str
    level: str
    verdict: Verdict
    seen: list[str] = []
    fails_with: str = ""


def run(site: Site, level: str, probes: Sequence[Probe]) -> Iterator[Finding]:
    """Yield what came of each probe, one after the other; a level that is not there is one finding."""
    try:
        box = site.box()
    except SandboxError as error:
        yield Finding(number=0, probe="level", about="this level", level=level,
                      verdict=Verdict.NOT_HERE, seen=[str(error)])  # fmt: skip
        return
    for probe in probes:
        inside, outside = partial(box.probe, probe.function), partial(_outside, probe, site)
        yield _judged(probe, level, inside if probe.inside else outside)


def _outside(probe: Probe, site: Site) -> list[str]:
    module, _, name = probe.function.partition(".")
    function = getattr(importlib.import_module(f"atoll.probes.outside.{module}"), name)
    found: list[str] = function(site)
    return found


def _judged(probe: Probe, level: str, attempt: Callable[[], list[str]]) -> Finding:
    try:
        if why := differences.not_tried(level, probe.name):
            raise NotSupportedByRuntimeError(why)
        verdict, seen = _verdict(level, attempt())
    except NotSupportedByRuntimeError as error:
        verdict, seen = Verdict.NOT_HERE, [error.message]
    except (SandboxError, httpx2.HTTPError, OSError, KeyError, ValueError) as error:
        verdict, seen = Verdict.ERROR, [f"{type(error).__name__}: {error}"]
    return Finding(
        number=probe.number, probe=probe.name, about=probe.about, level=level, verdict=verdict,
        seen=seen[:_SEEN], fails_with=probe.weakened,
    )  # fmt: skip


def _verdict(level: str, seen: list[str]) -> tuple[Verdict, list[str]]:
    if not seen:
        return Verdict.PASS, seen
    unknown = differences.unknown(level, seen)
    return (Verdict.FAIL, unknown) if unknown else (Verdict.DIFFERS, seen)


def holds(findings: Sequence[Finding]) -> bool:
    """Whether all that was tried at some level came to nothing."""
    verdicts = {finding.verdict for finding in findings}
    return Verdict.PASS in verdicts and not verdicts & {Verdict.FAIL, Verdict.ERROR}
