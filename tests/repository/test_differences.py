"""What the documents say that a level does not do is what the conformance suite expects of it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from conformance import differences

CONFORMANCE = Path(differences.__file__).parent


class Told(NamedTuple):
    """The rows of a level, and which refused ones no case is marked with."""

    marker: str
    rows: Mapping[str, str]
    unmarked: frozenset[str] = frozenset()


LEVELS = {
    "bwrap": Told("beyond_bwrap", differences.of_bwrap()),
    "gvisor": Told(
        "beyond_gvisor", differences.of_gvisor(), frozenset({'`sleep_mode="checkpoint"`'})
    ),
    "kubernetes": Told("beyond_pods", differences.of_pods(), frozenset({"building images"})),
}


def marked(marker: str) -> set[str]:
    """Return the rows that cases of the suite name."""
    pattern = re.compile(marker + r"\((?:\"|')(.+?)(?:\"|')\)")
    texts = [path.read_text() for path in CONFORMANCE.glob("test_*.py")]
    return {row.replace("\\", "") for text in texts for row in pattern.findall(text)}


@pytest.mark.parametrize("level", LEVELS)
def test_whatever_the_suite_expects_of_a_level_is_told(level: str) -> None:
    told = LEVELS[level]
    assert marked(told.marker)
    assert marked(told.marker) <= told.rows.keys()


@pytest.mark.parametrize("level", LEVELS)
def test_whatever_is_told_to_be_refused_is_expected_by_the_suite(level: str) -> None:
    told = LEVELS[level]
    refused = {row for row, how in told.rows.items() if differences.REFUSED in how}
    assert refused == (marked(told.marker) & refused) | told.unmarked
