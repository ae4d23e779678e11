import ipaddress

import pytest

from atoll.errors import InvalidConfigError
from atoll.network.plan import Plan, group, interface, sandbox_address, slot_number


def test_each_slot_has_a_block_of_its_own() -> None:
    plan = Plan("10.213.0.0/16")
    assert plan.slots == 16_384
    assert (plan.gateway(0), plan.address(0)) == ("10.213.0.1", "10.213.0.2")
    assert (plan.gateway(16_383), plan.address(16_383)) == ("10.213.255.253", "10.213.255.254")


def test_no_two_slots_share_an_address() -> None:
    plan = Plan("10.213.0.0/24")
    seen = [f(n) for n in range(plan.slots) for f in (plan.gateway, plan.address)]
    assert len(set(seen)) == len(seen)
    assert all(ipaddress.IPv4Address(a) in plan.network for a in seen)


def test_ipv6_addresses_have_the_same_order() -> None:
    plan = Plan("10.213.0.0/16", "fd00:1::/64")
    assert (plan.gateway6(3), plan.address6(3)) == ("fd00:1::d", "fd00:1::e")
    assert sandbox_address(plan.gateway6(3)) == plan.address6(3)


@pytest.mark.parametrize("cidr6", ["fd00::/120", "10.0.0.0/8", "fd00::1/64", "x"])
def test_an_ipv6_range_that_cannot_be_used_is_refused(cidr6: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"network\.cidr6"):
        Plan("10.213.0.0/16", cidr6)


@pytest.mark.parametrize("cidr", ["10.213.0.0/29", "10.213.0.1/16", "fd00::/64", "x", ""])
def test_a_range_that_cannot_be_used_is_refused_with_its_name(cidr: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        Plan(cidr)
    assert "network.cidr" in caught.value.message


def test_interface_names_fit_the_kernel_and_are_read_back() -> None:
    assert len(interface(4_194_303)) <= 15
    assert slot_number(interface(77)) == 77


@pytest.mark.parametrize("name", ["eth0", "atl", "atlx", "atl1x", "veth1"])
def test_foreign_interfaces_are_no_slots(name: str) -> None:
    assert slot_number(name) is None


def test_the_sandboxes_address_follows_the_gateways() -> None:
    plan = Plan("10.0.0.0/8")
    assert sandbox_address(plan.gateway(1_000_000)) == plan.address(1_000_000)


def test_engines_have_different_groups_and_never_the_default_one() -> None:
    groups = {group(f"engine-{n}") for n in range(1_000)}
    assert len(groups) == 1_000
    assert all(0 < g < 1 << 31 for g in groups)
