"""10 to 14: what of the host and of other sandboxes can be reached, and ways past a list of hosts."""

import secrets
from pathlib import Path
from typing import Any

from atoll.errors import NotSupportedByRuntimeError
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


_OWN_ADDRESS = """
import socket
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asking.connect(("192.0.2.1", 9))
print(asking.getsockname()[0])
"""
"""That by which anybody else is reached; nothing is sent."""


def _serving(box: Box) -> list[str]:
    box.serve("neighbour", _PORT, bind="0.0.0.0")
    return [box.python(_OWN_ADDRESS).strip()]


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


_ALLOWED = "allowed.example"
"""No resolver knows an address of it, so nothing is ever let out for it."""
_DENIED, _NAME = "1.1.1.1", "one.one.one.one"


def ways_round_a_list(site: Site) -> list[str]:
    """14: with a list of one host, no spelling and no head of a request reaches another.

    Raises:
        NotSupportedByRuntimeError: there is no internet that a list could keep a sandbox from.
    """
    if not site.box().probe("egress.plain", address=_DENIED):
        raise NotSupportedByRuntimeError(f"{_DENIED} is not reached here without a list either")
    box = site.box()
    box.told("POST", "/network", json={"allowedHosts": [_ALLOWED]})
    return box.probe("egress.gaps", allowed=_ALLOWED, address=_DENIED, server=_NAME)
