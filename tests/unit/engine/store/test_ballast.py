from pathlib import Path

import pytest

from atoll.engine.store import ballast
from atoll.engine.store.ballast import Ballast


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ballast, "RETRY", 0.0)


def test_the_space_is_really_taken_and_given_back_once(tmp_path: Path) -> None:
    held = Ballast(tmp_path / "b", size=1 << 16)
    held.hold()
    assert held.held
    assert (tmp_path / "b").stat().st_blocks * 512 >= 1 << 16
    assert [held.release(), held.release()] == [True, False]
    assert list(tmp_path.iterdir()) == []
    held.hold()
    assert held.held


def test_what_an_earlier_engine_held_is_taken_over(tmp_path: Path) -> None:
    Ballast(tmp_path / "b", size=4096).hold()
    again = Ballast(tmp_path / "b", size=4096)
    again.hold()
    assert again.release()


def test_no_space_leaves_no_file_and_no_error(tmp_path: Path) -> None:
    held = Ballast(tmp_path / "b", size=1 << 62)
    held.hold()
    assert not held.held
    assert not held.release()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_not_asked_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ballast, "RETRY", 60.0)
    held = Ballast(tmp_path / "b", size=4096)
    held.hold()
    held.release()
    held.hold()
    assert not held.held
