"""A registry that is not there is asked once an hour, not at every start."""

import os
from pathlib import Path

import pytest

from atoll.images import reach
from atoll.images.reach import Reach
from atoll.images.reference import parse

NOWHERE = parse("127.0.0.1:1/app")


async def _yes(*_: object) -> bool:
    return True


async def test_a_failure_is_remembered_by_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not await Reach(tmp_path / "marks").offers(NOWHERE, {})
    monkeypatch.setattr(reach, "_answers", _yes)
    again = Reach(tmp_path / "marks")
    assert not await again.offers(NOWHERE, {})
    again.forget(NOWHERE)
    assert await again.offers(NOWHERE, {})


async def test_a_failure_is_forgotten_after_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Reach(tmp_path)
    asked.note_failure(NOWHERE)
    monkeypatch.setattr(reach, "_answers", _yes)
    assert not await asked.offers(NOWHERE, {})
    (mark,) = tmp_path.iterdir()
    os.utime(mark, (mark.stat().st_mtime - 3_601,) * 2)
    assert await asked.offers(NOWHERE, {})
