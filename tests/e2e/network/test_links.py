import itertools
import subprocess
from pathlib import Path

import pytest

from atoll.network.links import Links
from atoll.network.plan import Plan, interface

pytestmark = pytest.mark.e2e


@pytest.fixture
def links(folder: Path, internet: Path) -> Links:
    return Links(Plan("10.213.0.0/16"), 4_711, folder)


def test_a_name_that_is_taken_on_the_host_is_passed_over(links: Links) -> None:
    subprocess.run(["ip", "link", "add", interface(5), "type", "veth"], check=True)
    number = links.make(itertools.count(5))
    assert number == 6
    links.remove(number)


def test_a_slot_knows_whose_it_is_and_forgets_nothing(links: Links) -> None:
    number = links.make([3])
    links.label(number, "somebody")
    assert links.find() == [(3, "somebody", "10.213.0.13", "")]
    links.remove(number)
    links.remove(number)
    assert links.find() == []


def test_slots_of_another_engine_are_not_found(links: Links, folder: Path) -> None:
    other = Links(Plan("10.213.0.0/16"), 4_712, folder)
    number = other.make([3])
    assert links.find() == []
    other.remove(number)


def test_the_mtu_is_that_of_the_way_out(links: Links) -> None:
    subprocess.run(["ip", "link", "set", "up0", "mtu", "1400"], check=True)
    number = links.make([3])
    shown = subprocess.run(["ip", "link", "show", interface(3)], capture_output=True, text=True)
    links.remove(number)
    assert "mtu 1400" in shown.stdout


def test_the_hosts_end_believes_nothing_the_sandbox_says(links: Links) -> None:
    number = links.make([3])
    conf = Path("/proc/sys/net/ipv4/conf") / interface(3)
    names = ("rp_filter", "arp_ignore", "accept_redirects", "accept_source_route")
    values = [(conf / name).read_text().strip() for name in names]
    links.remove(number)
    assert values == ["1", "1", "0", "0"]


def test_the_hosts_other_networks_are_told(links: Links) -> None:
    number = links.make([3])
    assert links.foreign_networks()["198.51.100.1/24"] == "up0"
    assert interface(3) not in links.foreign_networks().values()
    links.remove(number)
