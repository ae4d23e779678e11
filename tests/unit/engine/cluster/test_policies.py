from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from kubernetes_validate import utils as schemas

from atoll.cluster_settings import ClusterSettings
from atoll.engine.cluster import policies
from atoll.network.policy import SandboxPolicy
from atoll.runtime.kubernetes import manifest
from unit.runtime.kubernetes.test_manifest import VERSIONS

SETTINGS = ClusterSettings(engine_ranges=("192.0.2.0/24",))


def wanted(**changes: Any) -> SandboxPolicy:
    return SandboxPolicy(key="n/s", host_ref="r", addresses=(), **changes)


def reached(policy: SandboxPolicy, address: str) -> bool:
    """Whether the rules that result let a packet to *address* out, as a cluster reads them."""
    target = ip_address(address)
    blocks = [
        to["ipBlock"]
        for rule in policies.egress(policy)
        for to in rule["to"]
        if "ipBlock" in to and "ports" not in rule
    ]
    return any(
        target in ip_network(block["cidr"])
        and not any(target in ip_network(one) for one in block.get("except", ()))
        for block in blocks
    )


def resolves(policy: SandboxPolicy) -> bool:
    return any("ports" in rule for rule in policies.egress(policy))


MATRIX = [
    # policy, reached, not reached
    ({}, ["8.8.8.8", "2606:4700::1"], ["10.244.1.5", "169.254.169.254", "fd00:ec2::254", "::1"]),
    ({"internet": False}, [], ["8.8.8.8", "10.0.0.1", "2606:4700::1"]),
    ({"opened": ("10.1.0.0/16",)}, ["10.1.2.3", "8.8.8.8"], ["10.2.0.1"]),
    ({"denied": ("8.8.8.0/24",)}, ["8.8.4.4"], ["8.8.8.8"]),
    ({"denied": ("10.1.2.0/24",), "opened": ("10.1.0.0/16",)}, ["10.1.3.1"], ["10.1.2.3"]),
    ({"denied": ("10.0.0.0/8",), "opened": ("10.1.0.0/16",)}, ["8.8.8.8"], ["10.1.3.1"]),
    ({"denied": ("0.0.0.0/0",)}, ["2606:4700::1"], ["8.8.8.8"]),
    ({"allowed": ("8.8.8.8",)}, ["8.8.8.8"], ["8.8.4.4", "2606:4700::1"]),
    ({"allowed": ("8.8.8.8",), "internet": False}, ["8.8.8.8"], ["8.8.4.4"]),
    ({"allowed": ("10.1.0.0/16",)}, [], ["10.1.2.3"]),
    ({"allowed": ("10.0.0.0/8",), "opened": ("10.1.0.0/16",)}, ["10.1.2.3"], ["10.2.0.1"]),
    ({"allowed": ("10.1.2.0/24",), "opened": ("10.1.0.0/16",)}, ["10.1.2.3"], ["10.1.3.1"]),
    ({"allowed": ("8.0.0.0/6",), "denied": ("8.8.8.8",)}, ["8.8.4.4"], ["8.8.8.8", "10.0.0.1"]),
]


@pytest.mark.parametrize(("changes", "open_", "closed"), MATRIX)
def test_what_a_policy_opens_is_what_the_sandbox_reaches(
    changes: dict[str, Any], open_: list[str], closed: list[str]
) -> None:
    policy = wanted(**changes)
    assert {address: reached(policy, address) for address in open_ + closed} == {
        **dict.fromkeys(open_, True),
        **dict.fromkeys(closed, False),
    }


@pytest.mark.parametrize("changes", [changes for changes, _, _ in MATRIX])
def test_every_policy_is_valid_in_every_supported_version(changes: dict[str, Any]) -> None:
    made = policies.network_policy("r", policies.egress(wanted(**changes)), "e", SETTINGS)
    for version in (VERSIONS[0], VERSIONS[-1]):
        schemas.validate(made, version, strict=True)
    for rule in made["spec"]["egress"]:
        for block in (to["ipBlock"] for to in rule["to"] if "ipBlock" in to):
            for one in block.get("except", ()):  # which the API's server demands
                assert ip_network(one) != ip_network(block["cidr"])
                assert ip_network(one).subnet_of(ip_network(block["cidr"]))  # type: ignore[arg-type]


def test_names_are_resolved_only_where_somebody_is_reached_by_name() -> None:
    """A question for a name is a way out."""
    assert resolves(wanted())
    assert resolves(wanted(denied=("8.8.8.8",)))
    assert not resolves(wanted(internet=False))
    assert not resolves(wanted(allowed=("8.8.8.8",)))


def test_only_the_engine_gets_in() -> None:
    made = policies.network_policy("r", [], "e", SETTINGS)["spec"]
    (rule,) = made["ingress"]
    assert rule == {
        "from": [
            {"podSelector": {"matchLabels": policies.ENGINE}},
            {"ipBlock": {"cidr": "192.0.2.0/24"}},
        ]
    }
    assert made["policyTypes"] == ["Ingress", "Egress"]
    assert made["egress"] == []


def test_a_sandbox_is_not_taken_for_an_engine() -> None:
    assert not policies.ENGINE.items() <= manifest.labels("e").items()
