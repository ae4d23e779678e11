"""What can break in a kit's cluster, and replicas in networks of their own, so that it breaks for some.

The kit is the script that `tools/test_cluster.py` runs on: it can cut a node off and stop the API's
server. Each replica gets a network namespace on the same bridge, with a packet filter that drops what
it is cut off from without a word, as a broken network does.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from integration.server.engines import EngineProcess

KIT = os.environ.get("ATOLL_CLUSTER_KIT", "")
NODES = (1, 2, 3)

_PREFIX = os.environ.get("ATOLL_CLUSTER_NETNS", "bx")
_API = "10.77.0.2"
_NAMES = "/var/run/netns"


async def run(*argv: str, text: str | None = None) -> str:
    """Run a program of the host; it has to succeed."""
    done = await asyncio.to_thread(
        subprocess.run, argv, input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (argv, done.stdout, done.stderr)
    return done.stdout


async def kit(*verb: str) -> None:
    """Have the kit do something."""
    with open(os.devnull) as nothing:  # what it leaves running must not hold our pipes
        done = await asyncio.to_thread(
            subprocess.run, [KIT, *verb], stdin=nothing, stdout=-3, stderr=-3, check=False
        )
    assert done.returncode == 0, verb


def _pods_of(node: int) -> str:
    return f"10.244.{node}.0/24"


class Site:
    """The network of one replica."""

    def __init__(self, number: int) -> None:
        self.name, self.address = f"{_PREFIX}-r{number}", f"10.77.0.10{number}"

    async def make(self) -> None:
        """Make it; it is to be removed, whatever happens."""
        ours, theirs = f"v{self.name}", f"p{self.name}"
        await run("ip", "netns", "add", self.name)
        await run("ip", "link", "add", ours, "netns", self.name, "type", "veth",
                  "peer", "name", theirs, "netns", f"{_PREFIX}-sw")  # fmt: skip
        switch = ("ip", "-n", f"{_PREFIX}-sw", "link", "set", theirs)
        await run(*switch, "master", "br0")
        await run(*switch, "up")
        for words in (("link", "set", "lo", "up"), ("link", "set", ours, "up"),
                      ("addr", "add", f"{self.address}/24", "dev", ours)):  # fmt: skip
            await run("ip", "-n", self.name, *words)
        for node in NODES:
            await run(
                "ip", "-n", self.name, "route", "add", _pods_of(node), "via", f"10.77.0.1{node}"
            )

    async def remove(self) -> None:
        """Remove it, its link first: a namespace goes only some time after it was deleted."""
        with suppress(AssertionError):
            await run("ip", "-n", f"{_PREFIX}-sw", "link", "del", f"p{self.name}")
        with suppress(AssertionError):
            await run("ip", "netns", "del", self.name)

    @property
    def enter(self) -> tuple[str, ...]:
        """What runs a program in it."""
        return "nsenter", f"--net={_NAMES}/{self.name}"

    async def cut_from(self, *, api: bool = False, nodes: Sequence[int] = ()) -> None:
        """Drop all packets between here and those."""
        lost = [_API] * api + [_pods_of(node) for node in nodes]
        text = "table inet cut {}\ndelete table inet cut\n"
        if lost:
            them = ", ".join(lost)
            text += (
                "table inet cut {\n"
                f"chain o {{ type filter hook output priority 0; ip daddr {{ {them} }} drop; }}\n"
                f"chain i {{ type filter hook input priority 0; ip saddr {{ {them} }} drop; }}\n}}\n"
            )
        await run(*self.enter, "nft", "-f", "-", text=text)

    async def heal(self) -> None:
        """Drop nothing any more."""
        await self.cut_from()


_RUN = Path(os.environ.get("ATOLL_CLUSTER_KUBECONFIG", "/")).parent


async def _again(name: str) -> None:
    """Have the keeper of `tools/test_cluster.py` start what was ended: what tests start ends with them."""
    wanted = _RUN / "again" / name
    wanted.touch()
    async with asyncio.timeout(60):
        while wanted.exists():
            await asyncio.sleep(0.1)


@asynccontextmanager
async def kubelet_killed(node: int) -> AsyncIterator[None]:
    """Kill the kubelet of a node; its Pods live on."""
    os.kill(int((_RUN / "pids" / f"kubelet-n{node}").read_text()), signal.SIGKILL)
    try:
        yield
    finally:
        await _again(f"kubelet-n{node}")


@asynccontextmanager
async def node_cut(node: int) -> AsyncIterator[None]:
    """Cut a node off; its processes live on."""
    await kit("cut", f"n{node}")
    try:
        yield
    finally:
        await kit("heal", f"n{node}")


@asynccontextmanager
async def drained(node: str) -> AsyncIterator[None]:
    """Have an operator's command empty a node, and let Pods onto it again afterwards."""
    command = (KIT, "kubectl", "drain", node, "--force", "--delete-emptydir-data", "--timeout=90s")
    try:
        await run(*command)
        yield
    finally:
        await run(KIT, "kubectl", "uncordon", node)


@asynccontextmanager
async def api_stopped() -> AsyncIterator[None]:
    """Stop the server of the cluster's API."""
    await kit("apiserver-stop")
    try:
        yield
    finally:
        await _again("apiserver")


@asynccontextmanager
async def replicas(base: Path, **settings: str) -> AsyncIterator[list[tuple[Site, EngineProcess]]]:
    """Yield two replicas, each in a network of its own."""
    async with AsyncExitStack() as stack:
        made = []
        for number in (1, 2):
            site = Site(number)
            await site.remove()
            stack.push_async_callback(site.remove)
            await site.make()
            engine = await asyncio.to_thread(
                EngineProcess, base / site.name, level="kubernetes", settings=settings,
                enter=site.enter,
            )  # fmt: skip
            stack.push_async_callback(asyncio.to_thread, engine.end)
            assert "socket" in engine.hello, engine.hello
            made.append((site, engine))
        yield made
