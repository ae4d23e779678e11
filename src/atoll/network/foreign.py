"""What the host's other packet filters do to sandboxes. Pure.

A verdict of ours takes nothing back that another table refuses, and other tables are not ours to
change. Docker and firewalld drop forwarded packets by default: then sandboxes without a policy have
no internet until the operator lets their interfaces through. ufw drops what comes in: then those with
a policy have none, for their connections come in to the gateway.
"""

from typing import Any, Literal

SUGGESTIONS = {
    "forward": "let the interfaces atl* through; with Docker: iptables -I DOCKER-USER -i atl+ -j"
    " ACCEPT and iptables -I DOCKER-USER -o atl+ -m conntrack --ctstate ESTABLISHED,RELATED -j"
    " ACCEPT",
    "input": "let in what our packet filter redirects to the egress gateway:"
    " iptables -I INPUT -i atl+ -m conntrack --ctstate DNAT -j ACCEPT",
}
"""Hook → what helps where it drops. What reaches the host from there is filtered by our own table."""


def refusals(
    listing: dict[str, Any], hook: Literal["forward", "input"], own_prefix: str = "atoll_"
) -> list[str]:
    """Return "family table chain" of each foreign chain at *hook* that drops by default.

    Args:
        listing: what ``nft -j list chains`` prints.
        hook: where packets to other hosts, or to this one, pass.
        own_prefix: what the names of our own tables begin with.
    """
    chains = [item["chain"] for item in listing.get("nftables", ()) if "chain" in item]
    return [
        f"{chain['family']} {chain['table']} {chain['name']}"
        for chain in chains
        if chain.get("hook") == hook and chain.get("policy") == "drop"
        if chain["family"] in {"ip", "inet"} and not chain["table"].startswith(own_prefix)
    ]
