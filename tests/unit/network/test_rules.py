import ipaddress

import msgspec
import pytest

from atoll.network.rules import (
    BLOCKED,
    Filter,
    Redirect,
    remove_table,
    ruleset,
    set_mode,
    table_name,
)

BARE = Filter(table="atoll_x", group=7, cidr="10.213.0.0/16")
FULL = Filter(
    table="atoll_x",
    group=7,
    cidr="10.213.0.0/16",
    cidr6="fd61:746f:6c6c::/64",
    resolvers=("10.0.0.1", "2001:db8::53"),
    opened=("10.1.0.0/16", "fd00:1::/32"),
    direct=("atl3", "atl9"),
    gated=("atl4",),
    redirect=Redirect(4_000, 4_001, 990),
    log=5,
)


@pytest.mark.parametrize("rules", [BARE, FULL])
def test_the_table_is_replaced_in_one_transaction(rules: Filter) -> None:
    """Between two scripts there would be a moment without a policy."""
    first, second, third = ruleset(rules).splitlines()[:3]
    assert first == "add table inet atoll_x"
    assert second == "delete table inet atoll_x"
    assert third.startswith("table inet atoll_x")


def test_no_other_table_is_named() -> None:
    scripts = [ruleset(FULL), set_mode("atoll_x", "atl1", "direct"), remove_table("atoll_x")]
    tables = [line for script in scripts for line in script.splitlines() if " inet " in line]
    assert tables
    assert all("inet atoll_x" in line for line in tables)
    assert all("flush" not in script for script in scripts)


def test_sets_without_elements_are_valid() -> None:
    assert "elements = {  }" not in ruleset(BARE)


def test_modes_stay_when_the_table_is_replaced() -> None:
    script = ruleset(FULL)
    assert 'set direct { type ifname; elements = { "atl3", "atl9" }; }' in script
    assert 'set gated { type ifname; elements = { "atl4" }; }' in script


@pytest.mark.parametrize(
    ("mode", "left"), [("closed", set()), ("direct", {"direct"}), ("gated", {"gated"})]
)
def test_a_change_of_mode_leaves_a_slot_in_one_set(mode: str, left: set[str]) -> None:
    """Deleting an element that is not there would fail, so each is added first."""
    present: set[str] = set()
    for line in set_mode("t", "atl1", mode).splitlines():
        verb, _, _, _, name, *_ = line.split()
        if verb == "add":
            present.add(name)
        else:
            present.remove(name)
    assert present == left


def test_without_a_gateway_nobody_is_redirected() -> None:
    script = ruleset(msgspec.structs.replace(FULL, redirect=None))
    assert "redirect to" not in script
    assert "chain from_gateway" not in script
    assert "chain gated_out" in script


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
