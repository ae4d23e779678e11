"""What the documents say that Pods cannot do is what the conformance suite expects of them."""

import re
from pathlib import Path

import pytest

from conformance import differences

CONFORMANCE = Path(differences.__file__).parent
MARKED = {
    marked.replace("\\", "")
    for path in CONFORMANCE.glob("test_*.py")
    for marked in re.findall(r"beyond_pods\((?:\"|')(.+?)(?:\"|')\)", path.read_text())
}
UNTESTED = {"building images": "the suite builds none"}


def test_the_suite_knows_of_differences() -> None:
    assert MARKED


@pytest.mark.parametrize("row", sorted(MARKED))
def test_whatever_the_suite_expects_of_pods_is_told(row: str) -> None:
    assert row in differences.of_pods()


def test_whatever_is_told_to_be_refused_is_expected_by_the_suite() -> None:
    refused = {row for row, told in differences.of_pods().items() if differences.REFUSED in told}
    assert refused == (MARKED & refused) | UNTESTED.keys()
