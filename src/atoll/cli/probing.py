"""``atoll doctor --probe``: what hostile code would try, tried on this host, as a table."""

import json
from pathlib import Path
from typing import NamedTuple

import msgspec
import typer

from atoll.probes import catalogue, run, site
from atoll.probes.run import Finding, Verdict
from atoll.wire import inert

_MARKS = {
    Verdict.PASS: "pass", Verdict.FAIL: "FAIL", Verdict.ERROR: "error", Verdict.NOT_HERE: "-",
    Verdict.DIFFERS: "known",
}  # fmt: skip


class Asked(NamedTuple):
    """What the user asked for. No levels: all that are here; no names: all probes."""

    levels: tuple[str, ...]
    names: tuple[str, ...]
    slow: bool
    image: str | None
    config: Path | None


def probe(asked: Asked, *, as_json: bool) -> int:
    """Run the probes and print what each found; return the exit code.

    Raises:
        SandboxError: no engine can run here.
    """
    if unknown := set(asked.levels) - set(run.LEVELS):
        raise typer.BadParameter(f"no level {', '.join(unknown)}", param_hint="--level")
    try:
        probes = catalogue.chosen(asked.names, slow=asked.slow)
    except ValueError as error:
        raise typer.BadParameter(f"no probe {error}", param_hint="--only") from error
    findings = []
    for level in asked.levels or run.LEVELS:
        with site.opened(level, asked.image, asked.config) as opened:
            for finding in run.run(opened, level, probes):
                findings.append(finding)
                print(_json(finding) if as_json else _row(finding), flush=True)
    return not run.holds(findings)


def _json(finding: Finding) -> str:
    return json.dumps(msgspec.to_builtins(finding))


def _row(finding: Finding) -> str:
    number = str(finding.number or "")
    seen = inert.line("; ".join(finding.seen))
    if finding.verdict is Verdict.PASS and finding.fails_with:
        seen = f"fails with: {finding.fails_with}"
    head = f"{_MARKS[finding.verdict]:<5} {finding.level:<9} {number:>2} {finding.about:<24}"
    return f"{head} {seen}".rstrip()
