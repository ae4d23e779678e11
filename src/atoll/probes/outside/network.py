"""10 to 13: what of the host and of other sandboxes can be reached, and DNS as a way out."""

import secrets
from pathlib import Path
from typing import Any

from atoll.probes.box import Box
from atoll.probes.site import Site

_PORT = 8_000


def east_west(site: Site) -> list[str]:
    """10 and 12: neither the engine, nor the host, nor another sandbox, nor a private address."""
    box, neighbour = site.box(), site.box()
    facts: dict[str, Any] = {
        "addresses": sorted({*_gateways(box), *_addresses_of_the_host()}),
        "ports": _listening(),
        "neighbours": [[address, _PORT] for address in _serving(neighbour)],
    }
    return box.probe("network.east_west", **facts)


def _serving(box: Box) -> list[str]:
    box.serve("neighbour", _PORT, bind="0.0.0.0")
    return _local_addresses(box.read("/proc/net/fib_trie").decode())


def _gateways(box: Box) -> list[str]:
    """Return the routers that the sandbox has."""
    rows = [line.split() for line in box.read("/proc/net/route").decode().splitlines()[1:]]
    return [_dotted(row[2]) for row in rows if len(row) > 2 and int(row[2], 16)]


def _dotted(word: str) -> str:
    return ".".join(str(byte) for byte in reversed(bytes.fromhex(word)))


def _addresses_of_the_host() -> list[str]:
    return _local_addresses(Path("/proc/net/fib_trie").read_text("ascii"))[:16]


def _local_addresses(trie: str) -> list[str]:
    """Return the addresses of a network namespace's own, in the words of the kernel."""
    found, last = set(), ""
    for line in trie.splitlines():
        if "|--" in line:
            last = line.rpartition(" ")[2]
        elif "/32 host LOCAL" in line and not last.startswith("127."):
            found.add(last)
    return sorted(found)


def _listening() -> list[int]:
    """Return TCP ports that are listened on here, the engine's among them."""
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text("ascii").splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                ports.add(int(words[1].rpartition(":")[2], 16))
    return sorted(ports)[:64]


def names_as_a_way_out(site: Site) -> list[str]:
    """13: without internet no name is resolved, and no resolver can be asked directly."""
    box = site.box(enableInternet=False)
    return box.probe("network.resolving", label="p" + secrets.token_hex(8))
