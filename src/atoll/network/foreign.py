"""What the host's other packet filters do to sandboxes. Pure.

A verdict of ours takes nothing back that another table refuses, and other tables are not ours to
change. Docker, firewalld and ufw drop forwarded packets by default; then sandboxes have no
internet until the operator lets their interfaces through.
"""

from typing import Any

SUGGESTION = (
    "let the interfaces atl* through; with Docker: iptables -I DOCKER-USER -i atl+ -j ACCEPT and "
    "iptables -I DOCKER-USER -o atl+ -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"
)


def forward_refusals(listing: dict[str, Any], own_prefix: str = "atoll_") -> list[str]:
    """Return "family table chain" of each foreign forward chain that drops by default.

    Args:
        listing: what ``nft -j list chains`` prints.
        own_prefix: what the names of our own tables begin with.
    """
    chains = [item["chain"] for item in listing.get("nftables", ()) if "chain" in item]
    return [
        f"{chain['family']} {chain['table']} {chain['name']}"
        for chain in chains
        if chain.get("hook") == "forward" and chain.get("policy") == "drop"
        if chain["family"] in {"ip", "inet"} and not chain["table"].startswith(own_prefix)
    ]
