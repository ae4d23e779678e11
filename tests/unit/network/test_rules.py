import ipaddress

import pytest

from atoll.network.rules import BLOCKED, remove_table, ruleset, set_offline, table_name


def test_the_table_is_replaced_in_one_transaction() -> None:
    """Between two scripts there would be a moment without a policy."""
    script = ruleset("atoll_x", 7, "10.213.0.0/16", ["10.0.0.1"], [])
    first, second, third = script.splitlines()[:3]
    assert first == "add table inet atoll_x"
    assert second == "delete table inet atoll_x"
    assert third.startswith("table inet atoll_x")


def test_no_other_table_is_named() -> None:
    scripts = [
        ruleset("atoll_x", 7, "10.213.0.0/16", [], []),
        set_offline("atoll_x", "atl1", offline=False),
        remove_table("atoll_x"),
    ]
    tables = [line for script in scripts for line in script.splitlines() if " inet " in line]
    assert tables
    assert all("inet atoll_x" in line for line in tables)
    assert all("flush" not in script for script in scripts)


def test_sets_without_elements_are_valid() -> None:
    assert "elements = {  }" not in ruleset("atoll_x", 7, "10.213.0.0/16", [], [])


def test_those_without_internet_stay_so_when_the_table_is_replaced() -> None:
    assert 'elements = { "atl3", "atl9" }' in ruleset("t", 7, "10.0.0.0/8", [], ["atl3", "atl9"])


def test_going_online_twice_is_no_error() -> None:
    """Deleting an element that is not there would fail, so it is added first."""
    assert set_offline("t", "atl1", offline=False).splitlines() == [
        'add element inet t offline { "atl1" }',
        'delete element inet t offline { "atl1" }',
    ]


@pytest.mark.parametrize(
    "address",
    [
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "0.0.0.0",
        "224.0.0.251",
        "239.1.1.1",
        "255.255.255.255",
    ],
)
def test_addresses_that_are_not_the_internet_are_blocked(address: str) -> None:
    assert any(ipaddress.IPv4Address(address) in ipaddress.IPv4Network(b) for b in BLOCKED)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "172.32.0.1", "100.128.0.1", "192.169.0.1", "9.9.9.9"]
)
def test_the_internet_is_not(address: str) -> None:
    assert not any(ipaddress.IPv4Address(address) in ipaddress.IPv4Network(b) for b in BLOCKED)


def test_any_engine_id_gives_a_valid_table_name() -> None:
    assert table_name("3f-a.b;c") == "atoll_3f_a_b_c"
