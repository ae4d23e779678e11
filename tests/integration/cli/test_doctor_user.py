import tempfile
from pathlib import Path

import pytest

from atoll.cli import doctor_user


async def test_the_trial_mounts_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert await doctor_user.trial() is None
    assert list(tmp_path.iterdir()) == []


async def test_the_network_is_tried_and_nothing_of_it_is_left() -> None:
    before = {path.name for path in Path(tempfile.gettempdir()).glob("atoll-doctor-*")}
    assert await doctor_user.network_trial() is None
    assert {path.name for path in Path(tempfile.gettempdir()).glob("atoll-doctor-*")} <= before


async def test_a_report_names_the_level_that_is_there() -> None:
    report = await doctor_user.examine(1000)
    assert (report.isolation, report.runtime) == ("bwrap", "bwrap")
    assert {"user namespaces", "bubblewrap", "layers", "limits", "network", "images"} <= {
        check.name for check in report.checks
    }
