"""What is loaded into a namespace: addresses, and the packet filter. Pure.

The filter belongs to a user namespace above the sandbox's, so nobody inside can change it. Loopback
is left alone, but for the two ports of the listeners: connections to them that were not turned there
are closed by the gateway. The modes are those of `atoll.network.rules`: closed, nothing leaves; direct,
connections go to the gateway unless they are to ranges outside the public internet; gated, all do.
"""

from typing import NamedTuple

import msgspec

from atoll.network.filter import Mode
from atoll.network.rules import BLOCKED

_REFUSE = "reject with icmpx admin-prohibited"
_RESET = "reject with tcp reset"
"""A socket that is connecting, in the very call, overlooks an ICMP error and waits on (seen: 6.18)."""

_TCP_UDP = "meta l4proto { tcp, udp }"


class Ports(NamedTuple):
    """Ports of 127.0.0.1 in the namespace: of connections, and of names (TCP and UDP)."""

    connections: int
    names: int


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """All that the table of a namespace depends on.

    Args:
        own: the sandbox's address.
        ports: where the gateway listens.
        opened: ranges outside the public internet that sandboxes may reach.
        max_flows: connections that are turned to the gateway at once; each takes kernel memory.
        mode: how the sandbox reaches the internet.
    """

    own: str
    ports: Ports
    opened: tuple[str, ...] = ()
    max_flows: int = 4_096
    mode: Mode = "closed"


def addresses(own: str) -> str:
    """Return the batch for ``ip`` that gives loopback the sandbox's address and every destination."""
    return f"addr replace {own}/32 dev lo\nroute replace default dev lo src {own}\n"


def ruleset(rules: Filter) -> str:
    """Return the script for ``nft`` that replaces the table in one transaction."""
    local = f"ip daddr {{ 127.0.0.0/8, {rules.own} }}"
    return f"""add table inet atoll
delete table inet atoll
table inet atoll {{
{_set("opened", [range for range in rules.opened if ":" not in range])}
{_set("blocked", BLOCKED)}
  chain untracked {{
    type filter hook output priority raw; policy accept;
    {local} {_TCP_UDP} th sport != {{ {rules.ports.connections}, {rules.ports.names} }} notrack
    ip6 daddr ::1 notrack
  }}
{_redirected(rules, local)}
  chain leaving {{
    type filter hook output priority filter; policy drop;
    {local} tcp flags rst accept
    ct status dnat {_bound(rules)}{_RESET}
    {local} accept
    ip6 daddr ::1 accept
    meta l4proto tcp {_RESET}
    {_REFUSE}
  }}
}}
"""


def _redirected(rules: Filter, local: str) -> str:
    if rules.mode == "closed":
        return ""
    blocked = "ip daddr != @opened ip daddr @blocked return" if rules.mode == "direct" else ""
    return f"""
  chain redirected {{
    type nat hook output priority -100; policy accept;
    {local} return
    meta nfproto ipv4 {_TCP_UDP} th dport 53 redirect to :{rules.ports.names}
    {blocked}
    meta nfproto ipv4 meta l4proto tcp redirect to :{rules.ports.connections}
  }}
"""


def _bound(rules: Filter) -> str:
    """Return which turned connections are refused: those too many, or all that are left when closed."""
    return "" if rules.mode == "closed" else f"ct state new ct count over {rules.max_flows} "


def _set(name: str, members: "tuple[str, ...] | list[str]") -> str:
    elements = f" elements = {{ {', '.join(members)} }};" if members else ""
    return f"  set {name} {{ type ipv4_addr; flags interval; auto-merge;{elements} }}"
