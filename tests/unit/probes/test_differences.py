"""What is called harmless at a level is that only, and only there."""

import pytest

from atoll.probes import catalogue, differences


@pytest.mark.parametrize(
    "what", ["read /proc/7/maps", "follow /proc/1/fd/3", "follow its descriptors", "syslog"]
)
def test_what_is_known_of_gvisor_is_unknown_elsewhere(what: str) -> None:
    assert differences.unknown("gvisor", [what]) == []
    assert differences.unknown("container", [what]) == [what]


@pytest.mark.parametrize(
    "what", ["read /proc/1/mem", "follow /proc/1/root", "follow /proc/1/exe", "write its memory"]
)
def test_what_would_be_a_way_out_is_known_of_no_level(what: str) -> None:
    assert differences.unknown("gvisor", [what]) == [what]


def test_what_is_not_tried_is_a_probe() -> None:
    names = {probe.name for probe in catalogue.PROBES}
    assert {name for name in names if differences.not_tried("gvisor", name)} == {"signals"}
