"""Where a sandbox may connect to → NetworkPolicy. Pure.

A policy knows addresses and ranges, no names: what only a gateway can decide is refused before. It
opens what is listed here and nothing else, so that a sandbox is closed for everybody but the engine
until it has one, where the namespace closes its Pods as the install manifest does.

Other than by a gateway, an address is refused or allowed by whatever name it is asked for.
"""

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import collapse_addresses, ip_network
from typing import Any, Final

from atoll.cluster_settings import ClusterSettings
from atoll.network.hosts import CLOSED, Network
from atoll.network.policy import SandboxPolicy
from atoll.runtime.kubernetes.manifest import START_LABEL, labels

ENGINE: Final = {"app.kubernetes.io/name": "atoll", "app.kubernetes.io/component": "engine"}
"""Labels of the engine's own Pods. No caller sets labels of a Pod."""

_EVERYWHERE: Final = (ip_network("0.0.0.0/0"), ip_network("2000::/3"))
_DNS_PORTS: Final = [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]
_DNS: Final = {
    "namespaceSelector": {},
    "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
}

Rule = dict[str, Any]


def network_policy(
    host_ref: str, egress: Sequence[Rule], engine_id: str, cluster: ClusterSettings
) -> dict[str, Any]:
    """Return the policy of one start: the engine gets in, *egress* gets out."""
    engines: list[Rule] = [{"podSelector": {"matchLabels": ENGINE}}]
    engines += [{"ipBlock": {"cidr": one}} for one in cluster.engine_ranges]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": host_ref, "labels": labels(engine_id)},
        "spec": {
            "podSelector": {"matchLabels": {START_LABEL: host_ref}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": engines}],
            "egress": list(egress),
        },
    }


def egress(wanted: SandboxPolicy) -> list[Rule]:
    """Return what *wanted* opens. Its hosts are addresses and ranges only.

    Names are resolved only where there is somebody to reach by name: a question for one is a way out.
    """
    blocks = list(_blocks(wanted))
    rules = [{"to": blocks}] if blocks else []
    if wanted.internet and not wanted.allowed:
        rules.append({"to": [_DNS], "ports": _DNS_PORTS})
    return rules


def _blocks(wanted: SandboxPolicy) -> Iterator[Rule]:
    everywhere = _EVERYWHERE if wanted.internet else ()
    denied = _ranges(wanted.denied)
    for one in _ranges(wanted.allowed) or everywhere:
        yield from _block(one, [*CLOSED, *denied])
        for other in _ranges(wanted.opened):
            if inner := _inner(one, other):
                yield from _block(inner, denied)


def _block(opened: Network, closed: Iterable[Network]) -> Iterator[Rule]:
    inside = [one for one in closed if _inner(opened, one)]
    if any(_inner(opened, one) == opened for one in inside):
        return
    block: Rule = {"cidr": str(opened)}
    if inside:
        block["except"] = [str(one) for one in collapse_addresses(inside)]  # type: ignore[type-var]
    yield {"ipBlock": block}


def _inner(one: Network, other: Network) -> Network | None:
    """Return the narrower of two ranges if it is within the other."""
    if one.version != other.version or not one.overlaps(other):
        return None
    return max(one, other, key=lambda network: network.prefixlen)


def _ranges(hosts: Iterable[str]) -> list[Network]:
    return [ip_network(host, strict=False) for host in hosts]
