import pytest

from atoll.network.filter import Mode
from atoll.network.rootless.rules import Filter, Ports, addresses, ruleset
from atoll.network.rules import BLOCKED


def made(mode: Mode, **fields: object) -> str:
    return ruleset(Filter(own="10.213.0.2", ports=Ports(4_000, 4_001), mode=mode, **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["closed", "direct", "gated"])
def test_the_table_is_replaced_in_one_transaction(mode: Mode) -> None:
    """Between two scripts there would be a moment without a policy."""
    assert made(mode).splitlines()[:3] == [
        "add table inet atoll",
        "delete table inet atoll",
        "table inet atoll {",
    ]


def test_a_new_namespace_turns_nothing_to_the_gateway() -> None:
    script = ruleset(Filter(own="10.213.0.2", ports=Ports(4_000, 4_001)))
    assert "redirect" not in script
    assert "ct status dnat reject" in script, "what an earlier mode let out is cut"


def test_only_direct_leaves_out_what_is_not_public() -> None:
    """Gated, a handler may answer for an address that is nobody's."""
    assert "@blocked return" in made("direct")
    assert "@blocked return" not in made("gated")
    assert all(network in made("direct") for network in BLOCKED)


def test_what_the_operator_opened_is_turned_to_the_gateway() -> None:
    script = made("direct", opened=("10.1.0.0/16", "fd00:1::/32"))
    assert (
        "set opened { type ipv4_addr; flags interval; auto-merge; elements = { 10.1.0.0/16 }"
        in (script)
    )
    assert "fd00" not in script


def test_turned_connections_are_bounded() -> None:
    assert "ct status dnat ct state new ct count over 7 reject" in made("gated", max_flows=7)


def test_every_destination_is_on_loopback_from_the_sandboxes_own_address() -> None:
    assert addresses("10.213.0.2").splitlines() == [
        "addr replace 10.213.0.2/32 dev lo",
        "route replace default dev lo src 10.213.0.2",
    ]
