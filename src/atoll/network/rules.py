"""The packet filter of one engine as one nftables table. Pure.

Everything hangs on the interface group, so that a slot needs no rule of its own and has its
policy from the moment its interface exists. Verdicts only take away: another table (Docker's,
firewalld's) may refuse more, and a forward chain there whose policy is drop needs a rule that
accepts our range.

* Before connection tracking: IPv6 and every source address but the sandbox's own are dropped.
* To the host, any of its addresses: refused, but for answers and DNS where the host is a resolver.
* To other sandboxes, private, link-local, shared, multicast and reserved ranges: refused.
* Connections to a sandbox are accepted from the host alone.
* At most `MAX_FLOWS` tracked connections a sandbox: the table of the host is shared.
"""

import re
from collections.abc import Iterable

MAX_FLOWS = 4_096
"""Open connections of one sandbox. The host's table has 65,536 entries or more by default."""

BLOCKED = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/3",
)
"""Special-purpose addresses (RFC 6890, 1918, 6598, 3927, 5771); the last is multicast, reserved
and broadcast. 100.100.100.200, a metadata service, lies in shared space."""

_REFUSE = "reject with icmpx admin-prohibited"


def table_name(engine_id: str) -> str:
    """Return the name of the engine's table."""
    return "atoll_" + re.sub(r"[^A-Za-z0-9]", "_", engine_id)


def ruleset(
    table: str, group: int, cidr: str, resolvers: Iterable[str], offline: Iterable[str]
) -> str:
    """Return a script that replaces the engine's table in one transaction.

    Args:
        table: its name.
        group: interface group of the engine's slots.
        cidr: addresses of the slots.
        resolvers: addresses that may be asked by DNS, wherever they are.
        offline: interfaces of sandboxes without internet.
    """
    return f"""add table inet {table}
delete table inet {table}
table inet {table} {{
{_set("resolvers", "ipv4_addr", resolvers)}
{_set("offline", "ifname", _quoted(offline))}
{_set("blocked", "ipv4_addr", BLOCKED, flags="interval")}
  set flows {{ type ipv4_addr; flags dynamic; size 65535; }}

  chain spoofed {{
    type filter hook prerouting priority raw - 10; policy accept;
    iifgroup != {group} accept
    meta nfproto != ipv4 drop
    ip saddr != {cidr} drop
    fib saddr . iif oif 0 drop
  }}

  chain to_host {{
    type filter hook input priority filter - 10; policy accept;
    iifgroup != {group} accept
    iifname @offline ct direction original drop
    ct state established,related accept
    ip daddr @resolvers meta l4proto {{ tcp, udp }} th dport 53 accept
    {_REFUSE}
  }}

  chain through_host {{
    type filter hook forward priority filter - 10; policy accept;
    iifgroup {group} goto outbound
    oifgroup {group} goto inbound
  }}

  chain outbound {{
    iifname @offline {_REFUSE}
    oifgroup {group} {_REFUSE}
    ct state established,related accept
    ct state invalid drop
    add @flows {{ ip saddr ct count over {MAX_FLOWS} }} {_REFUSE}
    ip daddr @resolvers meta l4proto {{ tcp, udp }} th dport 53 accept
    ip daddr @blocked {_REFUSE}
  }}

  chain inbound {{
    oifname @offline drop
    ct state established,related accept
    drop
  }}

  chain leaving {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {cidr} oifname != "lo" oifgroup != {group} masquerade
  }}
}}
"""


def set_offline(table: str, name: str, *, offline: bool) -> str:
    """Return a script that puts an interface into the set of those without internet, or out."""
    element = f"element inet {table} offline {{ {_quoted([name])[0]} }}\n"
    return f"add {element}" if offline else f"add {element}delete {element}"


def remove_table(table: str) -> str:
    """Return a script that removes the engine's table, if there is one."""
    return f"add table inet {table}\ndelete table inet {table}\n"


def _quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]


def _set(name: str, kind: str, elements: Iterable[str], flags: str = "") -> str:
    parts = [f"type {kind};"]
    if flags:
        parts.append(f"flags {flags};")
    if members := ", ".join(elements):
        parts.append(f"elements = {{ {members} }};")
    return f"  set {name} {{ {' '.join(parts)} }}"
