from itertools import repeat

import pytest

from atoll.engine.storage import snapshots
from atoll.engine.storage.snapshots import told
from atoll.storage.diff import Change


def change(path: str) -> Change:
    return Change(path, "created", "file", 3)


def test_changes_are_told_as_they_were_found() -> None:
    answer = told([change("/b"), change("/a\udcff")])
    assert [(c.path, c.size) for c in answer.changes] == [("/b", 3), ("/a\uefff", 3)]
    assert not answer.truncated


@pytest.mark.parametrize("path", ["/x", "/" + "long" * 1_000])
def test_an_answer_has_an_end(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Code in the sandbox chooses how many files there are, and how long their names."""
    monkeypatch.setattr(snapshots, "MAX_CHANGES", 100)
    monkeypatch.setattr(snapshots, "MAX_PATHS", 100_000)
    answer = told(repeat(change(path)))
    assert answer.truncated
    assert 20 < len(answer.changes) <= 100
    assert sum(len(c.path) for c in answer.changes) <= 100_000


def test_as_many_as_fit_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "MAX_CHANGES", 2)
    assert not told([change("/a"), change("/b")]).truncated
