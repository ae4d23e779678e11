"""Probes 11 to 14 on a host with an internet: each holds, and fails where the filter has a gap."""

import json
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from atoll.network.rules import table_name
from atoll.probes import site as sites
from atoll.probes.outside import network
from atoll.probes.site import Site
from e2e.network import internet as net
from integration.server.engines import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def running() -> Iterator[Site]:
    with net.temporary(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATOLL_NETWORK_NAMESERVERS", net.RESOLVER)
        patch.setenv("ATOLL_NETWORK_IPV6", "on")
        with sites.opened("container") as opened:
            eventually(lambda: "redirect to" in _nft(f"list table {_table(opened)}"), 30)
            yield opened


@pytest.fixture
def site(running: Site) -> Iterator[Site]:
    yield running
    running.clear()


@contextmanager
def let_through(site: Site, *chains: str) -> Iterator[None]:
    """Let everything pass the packet filter's *chains*."""
    table, handles = _table(site), {}
    for chain in chains:
        told = _nft("--echo", "--json", "--handle", f"insert rule {table} {chain} accept")
        handles[chain] = json.loads(told)["nftables"][0]["insert"]["rule"]["handle"]
    try:
        yield
    finally:
        for chain, handle in handles.items():
            _nft(f"delete rule {table} {chain} handle {handle}")


def _table(site: Site) -> str:
    return f"inet {table_name(site.hello['engineId'])}"


def _nft(*arguments: str) -> str:
    told = subprocess.run(["nft", *arguments], capture_output=True, text=True, check=True)
    return told.stdout


def metadata(site: Site) -> list[str]:
    return site.box().probe("network.metadata")


PROBES = [metadata, network.east_west, network.names_as_a_way_out, network.ways_round_a_list]


@pytest.mark.slow
@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_finds_nothing(site: Site, probe: Callable[[Site], list[str]]) -> None:
    with socket.create_server(("", 0)):
        assert probe(site) == []


LONGER = pytest.mark.slow
WEAKENED = [
    (metadata, ("direct_out",), {r"169\.254\.169\.254:80", r"fd00:ec2::254:80"}),
    pytest.param(network.east_west, ("to_host",), {rf"{re.escape(net.UPLINK)}:\d+"}, marks=LONGER),
    pytest.param(network.east_west, ("through_host",), {r"10\.\d+\.\d+\.\d+:8000"}, marks=LONGER),
    pytest.param(network.names_as_a_way_out, ("outbound",),
                 {r"8\.8\.8\.8 by UDP", r"1\.1\.1\.1:443"}, marks=LONGER),
    (network.ways_round_a_list, ("redirected", "gated_out"), {"host '1.1.1.1'", "two hosts",
        "a second request", r"hello to 'allowed\.example'", "port 7", "as 16843009"}),
]  # fmt: skip


@pytest.mark.parametrize(("probe", "chains", "found"), WEAKENED)
def test_a_gap_of_the_filter_is_noticed(
    site: Site, probe: Callable[[Site], list[str]], chains: tuple[str, ...], found: set[str]
) -> None:
    with socket.create_server(("", 0)), let_through(site, *chains):
        violations = probe(site)
    for wanted in found:
        assert any(re.fullmatch(wanted, one) for one in violations), (wanted, violations)
