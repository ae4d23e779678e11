import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
import typer

from atoll.cli import probing
from atoll.cli.probing import Asked
from atoll.probes import run, site
from atoll.probes.run import Finding, Verdict


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    findings: list[Finding] = []

    @contextmanager
    def opened(*_: Any) -> Iterator[None]:
        yield

    monkeypatch.setattr(site, "opened", opened)
    monkeypatch.setattr(run, "run", lambda *_: iter(findings))
    return findings


def asked(*levels: str, names: tuple[str, ...] = ()) -> Asked:
    return Asked(levels, names, slow=False, image=None, config=None)


def finding(verdict: Verdict, *seen: str) -> Finding:
    return Finding(number=9, probe="p", about="calls", level="container", verdict=verdict,
                   seen=list(seen))  # fmt: skip


def test_the_exit_code_says_whether_all_held(found: list[Finding]) -> None:
    found.append(finding(Verdict.PASS))
    assert probing.probe(asked("container"), as_json=False) == 0
    found.append(finding(Verdict.FAIL, "ptrace"))
    assert probing.probe(asked("container"), as_json=False) == 1


def test_what_was_seen_is_told_and_does_nothing_to_a_terminal(
    found: list[Finding], capsys: pytest.CaptureFixture[str]
) -> None:
    found.append(finding(Verdict.FAIL, "\x1b[2Jptrace"))
    probing.probe(asked("container"), as_json=False)
    assert capsys.readouterr().out == "FAIL  container  9 calls                    \\x1b[2Jptrace\n"
    probing.probe(asked("container"), as_json=True)
    assert json.loads(capsys.readouterr().out)["seen"] == ["\x1b[2Jptrace"]


def test_what_held_says_with_what_it_would_not(
    found: list[Finding], capsys: pytest.CaptureFixture[str]
) -> None:
    """A table of passes alone says nothing: the reader learns that each of them can fail."""
    found.append(msgspec.structs.replace(finding(Verdict.PASS), fails_with="no filter"))
    probing.probe(asked("container"), as_json=False)
    assert capsys.readouterr().out.endswith(" fails with: no filter\n")


def test_what_is_no_level_or_probe_is_refused(found: list[Finding]) -> None:
    for wrong in (asked("fake"), asked("container", names=("nonsense",))):
        with pytest.raises(typer.BadParameter):
            probing.probe(wrong, as_json=False)
