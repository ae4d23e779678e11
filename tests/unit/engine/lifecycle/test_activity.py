import re
import time
from pathlib import Path

import pytest

from atoll.engine.lifecycle.activity import EFFECTS, Activity, Effect, Use

DOCUMENT = Path(__file__).parents[4] / "docs" / "lifecycle.md"


def test_every_use_has_an_effect() -> None:
    assert set(EFFECTS) == set(Use)


def test_the_documentation_has_the_same_table() -> None:
    rows = re.findall(
        r"^\| ([^|]+) \| (holds|renews|nothing) \|", DOCUMENT.read_text(), re.MULTILINE
    )
    assert {use.strip(): effect for use, effect in rows} == {
        use.value: effect.value for use, effect in EFFECTS.items()
    }


def past(activity: Activity, seconds: float) -> None:
    activity.last -= seconds


def test_a_call_holds_off_sleep_until_it_ends_and_idle_time_counts_from_there() -> None:
    activity = Activity()
    past(activity, 100)
    with activity.during(Use.CALL), activity.during(Use.CALL):
        assert activity.holds()
        assert activity.idle() == 0
    assert not activity.holds()
    assert activity.idle() < 50


@pytest.mark.parametrize("use", Use)
def test_only_what_is_activity_starts_idle_time_anew(use: Use) -> None:
    activity = Activity()
    past(activity, 100)
    activity.note(use)
    assert (activity.idle() < 50) == (EFFECTS[use] is not Effect.NOTHING)


@pytest.mark.parametrize("use", Use)
def test_only_what_holds_keeps_it_awake(use: Use) -> None:
    activity = Activity()
    with activity.during(use):
        assert activity.holds() == (EFFECTS[use] is Effect.HOLDS)
    assert activity.holds([use]) == (EFFECTS[use] is Effect.HOLDS)


def test_idle_time_of_an_earlier_engine_counts_and_a_clock_set_back_does_not() -> None:
    activity = Activity()
    activity.adopt(30)
    assert 29 < activity.idle() < 60
    activity.adopt(-30)
    assert activity.last <= time.monotonic()
