from typing import Any

import pytest

from atoll.engine.egress import effective
from atoll.engine.egress.stored import Egress
from atoll.network.policy import Handler, SandboxPolicy
from atoll.network_settings import NetworkSettings
from atoll.wire.egress import EgressDefaults, OutboundHandler

SETTINGS = NetworkSettings(private_ranges=("10.1.0.0/16",), tls_bypass=("*.Pinned.test",))


def made(own: Egress | None = None, *, internet: bool = True, **defaults: Any) -> SandboxPolicy:
    return effective.policy(
        ("N", "box"), own or Egress(), EgressDefaults(**defaults), SETTINGS, internet=internet
    )


def test_a_sandboxs_own_list_stands_in_for_its_classs() -> None:
    assert made(allowed_hosts=["A.test"]).allowed == ("a.test",)
    assert made(Egress(allowed=()), allowed_hosts=["a.test"]).allowed == ()
    assert made(Egress(denied=("b.test",)), denied_hosts=["a.test"]).denied == ("b.test",)


def test_handlers_of_both_are_kept_apart() -> None:
    """Those set at run time come first, wherever the class has a more exact one."""
    chosen = OutboundHandler(name="h", params=[1])
    found = made(
        Egress(by_host={"*.test": chosen}, handler=chosen),
        outbound=True,
        outbound_by_host=["A.test"],
    )
    assert found.runtime_by_host == {
        "*.test": Handler(table="outbound_handlers", name="h", params=[1])
    }
    assert found.class_by_host == {"a.test": Handler(table="outbound_by_host", name="A.test")}
    assert found.runtime_all == Handler(table="outbound_handlers", name="h", params=[1])
    assert found.class_all == Handler(table="outbound")


def test_what_the_operator_says_is_part_of_it() -> None:
    found = made()
    assert (found.opened, found.bypass) == (("10.1.0.0/16",), ("*.pinned.test",))
    assert found.closed == (SETTINGS.cidr, SETTINGS.cidr6)


@pytest.mark.parametrize(
    ("internet", "defaults", "mode"),
    [(True, {}, "direct"), (False, {}, "closed"), (False, {"denied_hosts": ["a"]}, "closed"),
     (False, {"allowed_hosts": ["a"]}, "gated"), (False, {"outbound": True}, "gated"),
     (True, {"denied_hosts": ["a"]}, "gated"), (True, {"intercept_https": True}, "gated")],
)  # fmt: skip
def test_the_mode_follows_from_what_is_to_be_decided(
    internet: bool, defaults: dict[str, Any], mode: str
) -> None:
    assert effective.mode(made(internet=internet, **defaults)) == mode


def test_only_who_opens_tls_needs_an_authority() -> None:
    assert effective.opens_tls(made(intercept_https=True))
    assert not effective.opens_tls(made(outbound=True))


def test_callers_are_shown_names_of_handlers_only() -> None:
    own = Egress(by_host={"a.test": OutboundHandler(name="h", params="private")})
    shown = effective.shown(made(own, outbound=True))
    assert (shown.mode, shown.outbound, shown.outbound_by_host) == (
        "gateway",
        "outbound",
        {"a.test": "h"},
    )


def test_handlers_of_a_class_are_shown_by_what_their_functions_are_called() -> None:
    functions = {"A.test": "sign"}
    shown = effective.shown(
        made(outbound=True, outbound_by_host=["A.test"], functions=functions, function="rest")
    )
    assert (shown.outbound, shown.outbound_by_host) == ("rest", {"a.test": "sign"})


def test_a_policy_is_told_of_its_container() -> None:
    found = effective.placed(made(), "ref", ("10.213.0.2", "fd00::2"))
    assert (found.host_ref, found.addresses) == ("ref", ("10.213.0.2", "fd00::2"))


def test_addresses_and_ranges_decide_without_anybody_who_reads_names() -> None:
    by_address: dict[str, Any] = {
        "allowed_hosts": ["8.8.8.8", "10.0.0.0/8"],
        "denied_hosts": ["8.8.4.4"],
    }
    assert effective.by_address(made(internet=True, **by_address))
    for change in ({"denied_hosts": ["*.org"]}, {"intercept_https": True}, {"outbound": True}):
        assert not effective.by_address(made(internet=True, **(by_address | change)))
