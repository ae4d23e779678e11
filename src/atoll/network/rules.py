"""The packet filter of one engine as one nftables table. Pure.

Everything hangs on the interface group, so that a slot has its policy from the moment its interface
exists, and on two sets of interfaces. A slot in neither is closed: nothing leaves it.

* `direct`: connections leave translated; new ones are logged at a bounded rate.
* `gated`: TCP goes to the gateway's listener wherever it was sent; all else is refused and logged.
* Both: DNS goes to the gateway's resolver whatever server was asked; where no gateway runs, `direct`
  slots ask the host's resolvers.

Before connection tracking every source address but the sandbox's own is dropped, and what is above a
sandbox's rate of questions for names: all of them share one socket of the gateway. Nothing reaches the
host but what was redirected, and nothing another sandbox, or private, link-local, shared, multicast
and reserved ranges that the operator did not open. The gateway's own user is held to the same ranges
where its packets leave.

Verdicts only take away: another table (Docker's, firewalld's) may refuse more, and a forward chain
there whose policy is drop needs a rule that accepts our interfaces.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from atoll.network import hosts
from atoll.wire.agent import AGENT_PORT

LOG_RATE = 50
"""Packets of one sandbox a second that are told to the log, after a burst of four times as many."""

QUESTION_RATE, QUESTION_BURST = 200, 100
"""Packets to port 53 of one sandbox a second, on average and at once; others are lost. The socket that all
sandboxes share holds 277 by default, so a burst of one must be less while the gateway is busy."""

BEGIN_RATE, BEGIN_BURST = 200, 1_000
"""Connections to the gateway that one sandbox begins a second. The packet that begins another is lost, and
its kernel sends it again a second later: the program waits."""

BLOCKED = tuple(str(network) for network in hosts.CLOSED if network.version == 4)
BLOCKED6 = tuple(str(network) for network in hosts.CLOSED if network.version == 6)

_TCP_UDP = "meta l4proto { tcp, udp }"
_DISCOVERY = "{ nd-neighbor-solicit, nd-neighbor-advert }"
_REFUSE = "goto at_once"


class Redirect(NamedTuple):
    """Where the gateway listens.

    Args:
        connections: TCP port of all connections.
        names: UDP and TCP port of DNS.
        uid: whom it runs as.
    """

    connections: int
    names: int
    uid: int


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """All that the table of an engine depends on.

    Args:
        table: its name.
        group: interface group of the engine's slots.
        cidr: IPv4 addresses of the slots.
        cidr6: their IPv6 addresses; None: they have none, and IPv6 is dropped.
        resolvers: the host's resolvers, wherever they are.
        opened: ranges outside the public internet that sandboxes may reach.
        direct: interfaces of slots whose connections leave translated.
        gated: interfaces of slots whose connections go to the gateway.
        redirect: where the gateway listens; None: there is none.
        log: group of the netlink log; None: nothing is logged.
        max_flows: tracked connections of one sandbox; the table of the host is shared.
    """

    table: str
    group: int
    cidr: str
    cidr6: str | None = None
    resolvers: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    direct: tuple[str, ...] = ()
    gated: tuple[str, ...] = ()
    redirect: Redirect | None = None
    log: int | None = None
    max_flows: int = 4_096


def table_name(engine_id: str) -> str:
    """Return the name of the engine's table."""
    return "atoll_" + re.sub(r"[^A-Za-z0-9]", "_", engine_id)


def ruleset(rules: Filter) -> str:
    """Return a script that replaces the engine's table in one transaction."""
    chains = (
        _sets(rules),
        _AT_ONCE,
        _spoofed(rules),
        _redirected(rules),
        _to_host(rules),
        _through_host(rules),
        _to_agents(rules),
        _from_gateway(rules),
        _leaving(rules),
    )
    return f"{remove_table(rules.table)}table inet {rules.table} {{\n{''.join(chains)}}}\n"


def set_mode(table: str, name: str, mode: str) -> str:
    """Return a script that puts an interface into the set *mode*, "" for none, in one transaction.

    Deleting an element that is not there fails, so each is added first.
    """
    quoted = f'{{ "{name}" }}'
    lines = []
    for other in ("direct", "gated"):
        lines.append(f"add element inet {table} {other} {quoted}")
        if other != mode:
            lines.append(f"delete element inet {table} {other} {quoted}")
    return "\n".join(lines) + "\n"


def remove_table(table: str) -> str:
    """Return a script that removes the engine's table, if there is one."""
    return f"add table inet {table}\ndelete table inet {table}\n"


def _sets(rules: Filter) -> str:
    four, six = _by_family(rules.resolvers)
    opened, opened6 = _by_family(rules.opened)
    return "\n".join((
        _set("direct", "ifname", _quoted(rules.direct)),
        _set("gated", "ifname", _quoted(rules.gated)),
        _set("resolvers", "ipv4_addr", four),
        _set("resolvers6", "ipv6_addr", six),
        _set("opened", "ipv4_addr", opened, flags="interval"),
        _set("opened6", "ipv6_addr", opened6, flags="interval"),
        _set("blocked", "ipv4_addr", BLOCKED, flags="interval"),
        _set("blocked6", "ipv6_addr", BLOCKED6, flags="interval"),
        "  set flows { type ifname; flags dynamic; size 65535; }",
        "  set logged { type ifname; flags dynamic; size 65535; }",
        "  set discovering { type ifname; flags dynamic; size 65535; }",
        "  set asking { type ifname; flags dynamic; size 65535; }",
        "  set beginning { type ifname; flags dynamic; size 65535; }\n",
    ))  # fmt: skip


_AT_ONCE = """
  chain at_once {
    meta l4proto tcp reject with icmpx host-unreachable
    reject with icmpx admin-prohibited
  }
"""
"""What programs are told so that they need not wait. Linux takes either for TCP, and the second only for
a connected UDP socket; gVisor (of 2022) knows the first only, and waited for minutes at the second."""


def _spoofed(rules: Filter) -> str:
    six = "meta nfproto ipv6 drop"
    if rules.cidr6:
        # Neighbour discovery is all that link-local addresses are for. Each source it comes from is
        # an entry in a table that the whole host has one of, with 1,024 places by default.
        six = f"""meta nfproto ipv6 ip6 saddr != {{ fe80::/10, ::, {rules.cidr6} }} drop
    icmpv6 type {_DISCOVERY} ip6 hoplimit 255 {_over("discovering", 5, 20)} drop
    icmpv6 type {_DISCOVERY} ip6 hoplimit 255 accept
    meta nfproto ipv6 ip6 saddr != {rules.cidr6} drop"""
    return f"""
  chain spoofed {{
    type filter hook prerouting priority raw - 10; policy accept;
    iifgroup != {rules.group} accept
    {six}
    meta nfproto ipv4 ip saddr != {rules.cidr} drop
    fib saddr . iif oif 0 drop
    udp dport 53 {_over("asking", QUESTION_RATE, QUESTION_BURST)} drop
  }}
"""


def _redirected(rules: Filter) -> str:
    """Before other tables translate addresses: Docker's takes what is for the host's own ones."""
    if not rules.redirect:
        return ""
    return f"""
  chain redirected {{
    type nat hook prerouting priority dstnat - 10; policy accept;
    iifgroup != {rules.group} accept
    iifname @gated {_TCP_UDP} th dport 53 redirect to :{rules.redirect.names}
    iifname @direct {_TCP_UDP} th dport 53 redirect to :{rules.redirect.names}
    iifname @gated meta l4proto tcp redirect to :{rules.redirect.connections}
  }}
"""


def _to_host(rules: Filter) -> str:
    ports = given = ""
    if rules.redirect:
        numbers = f"{{ {rules.redirect.connections}, {rules.redirect.names} }}"
        ports = f"iifgroup != {rules.group} ct state new {_TCP_UDP} th dport {numbers} drop\n    "
        accept = f"ct status dnat {_TCP_UDP} th dport {numbers} accept\n    "
        given = (
            f"meta l4proto tcp ct state new {_over('beginning', BEGIN_RATE, BEGIN_BURST)} drop\n    "
            f"ct state new add @flows {{ iifname ct count over {rules.max_flows} }} drop\n    "
            f"iifname @direct {accept}iifname @gated {accept}"
        )
    asked = "" if rules.redirect else _asking("iifname @direct ")
    return f"""
  chain to_host {{
    type filter hook input priority filter - 10; policy accept;
    {ports}iifgroup != {rules.group} accept
    ct direction reply accept
    icmpv6 type {_DISCOVERY} accept
    {given}{asked}{_log(rules, "host")}
    {_REFUSE}
  }}
"""


def _through_host(rules: Filter) -> str:
    asked = "" if rules.redirect else _asking()
    return f"""
  chain through_host {{
    type filter hook forward priority filter - 10; policy accept;
    iifgroup {rules.group} goto outbound
    oifgroup {rules.group} goto inbound
  }}

  chain outbound {{
    oifgroup {rules.group} {_REFUSE}
    iifname @direct goto direct_out
    iifname @gated goto gated_out
    {_log(rules, "off")}
    {_REFUSE}
  }}

  chain direct_out {{
    ct state established,related accept
    ct state invalid drop
    add @flows {{ iifname ct count over {rules.max_flows} }} {_REFUSE}
    {asked}ip daddr {rules.cidr} goto refused
    {f"ip6 daddr {rules.cidr6} goto refused" if rules.cidr6 else ""}
    ip daddr @opened goto out
    ip6 daddr @opened6 goto out
    ip daddr @blocked goto refused
    ip6 daddr @blocked6 goto refused
    goto out
  }}

  chain out {{
    {_log(rules, "out")}
    accept
  }}

  chain refused {{
    {_log(rules, "closed")}
    {_REFUSE}
  }}

  chain gated_out {{
    {_log(rules, "gated")}
    meta l4proto tcp reject with tcp reset
    {_REFUSE}
  }}

  chain inbound {{
    ct state established,related accept
    drop
  }}
"""


def _to_agents(rules: Filter) -> str:
    """Let nobody but root, who runs the engine, speak to agents that have an address."""
    return f"""
  chain to_agents {{
    type filter hook output priority filter - 10; policy accept;
    oifgroup {rules.group} tcp dport {AGENT_PORT} meta skuid != 0 reject with tcp reset
  }}
"""


def _from_gateway(rules: Filter) -> str:
    """Return what the gateway's user may send.

    The kernel's own packets, as IPv6 neighbour advertisements, have no user: ``skuid != uid`` would
    not match them either.
    """
    if not rules.redirect:
        return ""
    return f"""
  chain from_gateway {{
    type filter hook output priority filter - 10; policy accept;
    meta skuid {rules.redirect.uid} goto gateway_out
  }}

  chain gateway_out {{
    ct direction reply accept
    {_asking()}oifgroup {rules.group} {_REFUSE}
    ip daddr {rules.cidr} {_REFUSE}
    fib daddr type local {_REFUSE}
    ip daddr @opened accept
    ip6 daddr @opened6 accept
    ip daddr @blocked {_REFUSE}
    ip6 daddr @blocked6 {_REFUSE}
  }}
"""


def _leaving(rules: Filter) -> str:
    six = ""
    if rules.cidr6:
        six = f"""
    ip6 saddr {rules.cidr6} oifname != "lo" oifgroup != {rules.group} masquerade"""
    return f"""
  chain leaving {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {rules.cidr} oifname != "lo" oifgroup != {rules.group} masquerade{six}
  }}
"""


def _asking(who: str = "") -> str:
    """Accept questions to the host's resolvers; *who*: a match in front."""
    dns = f"{_TCP_UDP} th dport 53 accept\n    "
    return f"{who}ip daddr @resolvers {dns}{who}ip6 daddr @resolvers6 {dns}"


def _log(rules: Filter, kind: str) -> str:
    """Tell the log of a new connection, or of a packet that is refused."""
    if rules.log is None:
        return ""
    return (
        f"ct state new update @logged {{ iifname limit rate {LOG_RATE}/second "
        f'burst {4 * LOG_RATE} packets }} log prefix "{kind}" group {rules.log} snaplen 96'
    )


def _over(counted: str, rate: int, burst: int) -> str:
    """Match a sandbox's packets above a rate; *counted*: the set that has a count for each."""
    return f"update @{counted} {{ iifname limit rate over {rate}/second burst {burst} packets }}"


def _by_family(addresses: Iterable[str]) -> tuple[list[str], list[str]]:
    four = [address for address in addresses if ":" not in address]
    return four, [address for address in addresses if ":" in address]


def _quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]


def _set(name: str, kind: str, elements: Iterable[str], flags: str = "") -> str:
    parts = [f"type {kind};"]
    if flags:
        parts.append(f"flags {flags};")
        parts.append("auto-merge;")
    if members := ", ".join(elements):
        parts.append(f"elements = {{ {members} }};")
    return f"  set {name} {{ {' '.join(parts)} }}"
