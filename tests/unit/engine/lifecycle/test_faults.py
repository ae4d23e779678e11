import os
import re
import signal
from pathlib import Path

import pytest

from atoll.engine.lifecycle import faults, steps
from atoll.engine.lifecycle.faults import KEPT, POINTS, Faults
from atoll.settings import FaultSettings


def test_the_points_name_every_step_of_a_start_and_every_undo() -> None:
    assert [step.name for step in steps.STEPS] == list(faults.STEPS)
    undone = {f"remove.{step.name}" for step in steps.STEPS if step.remove}
    assert undone == {point for point in POINTS if point.startswith("remove.")}
    assert len({*POINTS, *KEPT}) == len(POINTS) + len(KEPT)


def test_every_point_of_what_is_kept_is_passed_somewhere() -> None:
    """A campaign against a point that nothing passes would test nothing."""
    sources = [path.read_text() for path in Path(faults.__file__).parents[1].rglob("*.py")]
    passed = {name for text in sources for name in re.findall(r'\.at\("([a-z_.]+)"\)', text)}
    assert set(KEPT) <= passed


def test_nothing_happens_unless_a_point_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "kill", pytest.fail)
    for point in (*POINTS, *KEPT):
        Faults(FaultSettings()).at(point)
        Faults(FaultSettings(point="elsewhere")).at(point)


def test_the_engine_dies_at_the_passage_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    kills: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: kills.append((pid, number)))
    found = Faults(FaultSettings(point="exec.asked", passage=2))
    found.at("exec.asked")
    found.at("exec.ended")
    assert kills == []
    found.at("exec.asked")
    assert kills == [(os.getpid(), signal.SIGKILL)]
