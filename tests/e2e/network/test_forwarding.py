from pathlib import Path

import pytest

from atoll.network import forwarding

pytestmark = pytest.mark.e2e


def test_forwarding_ipv6_leaves_the_hosts_own_way_out(internet: Path) -> None:
    """A kernel that forwards ignores router advertisements where it is told 1."""
    conf = Path("/proc/sys/net/ipv6/conf/up0/accept_ra")
    conf.write_text("1")
    assert not forwarding.enabled6()
    forwarding.enable6()
    assert forwarding.enabled6()
    assert conf.read_text().strip() == "2"


def test_forwarding_is_switched_on(internet: Path) -> None:
    path = Path("/proc/sys/net/ipv4/ip_forward")
    path.write_text("0")
    forwarding.enable()
    forwarding.enable()
    assert path.read_text().strip() == "1"
