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
from contextlib import AsyncExitStack, asynccontextmanager
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
            await run("ip", "-n", self.name, "route", "add", _pods_of(node), "via", f"10.77.0.1{node}")

    async def remove(self) -> None:
        """Remove it; its links go with it."""
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


class Kubelet:
    """The kubelet of one node, which can be killed and started again."""

    def __init__(self, node: int) -> None:
        self._node = node
        run_dir = Path(os.environ["ATOLL_CLUSTER_KUBECONFIG"]).parent
        self._pid_file = run_dir / "pids" / f"kubelet-n{node}"

    @asynccontextmanager
    async def killed(self) -> AsyncIterator[None]:
        """Kill it; start it again, in the namespaces that it had."""
        pid = int(self._pid_file.read_text())
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")[:-1]
        mounts, net = (os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in ("mnt", "net"))
        os.kill(pid, signal.SIGKILL)
        try:
            yield
        finally:
            enter = ("nsenter", f"--mount=/proc/self/fd/{mounts}", f"--net=/proc/self/fd/{net}")
            with open(os.devnull, "r+") as nothing:
                again = subprocess.Popen(
                    [*enter, *argv], env=dict(one.split(b"=", 1) for one in environ),  # type: ignore[misc]
                    pass_fds=[mounts, net], stdin=nothing, stdout=nothing, stderr=nothing,
                    start_new_session=True,
                )  # fmt: skip
            self._pid_file.write_text(f"{again.pid}\n")
            os.close(mounts)
            os.close(net)


@asynccontextmanager
async def node_cut(node: int) -> AsyncIterator[None]:
    """Cut a node off; its processes live on."""
    await kit("cut", f"n{node}")
    try:
        yield
    finally:
        await kit("heal", f"n{node}")


@asynccontextmanager
async def api_stopped() -> AsyncIterator[None]:
    """Stop the server of the cluster's API."""
    await kit("apiserver-stop")
    try:
        yield
    finally:
        await kit("apiserver-start")


@asynccontextmanager
async def replicas(base: Path, **settings: str) -> AsyncIterator[list[tuple[Site, EngineProcess]]]:
    """Yield two replicas, each in a network of its own."""
    async with AsyncExitStack() as stack:
        made = []
        for number in (1, 2):
            site = Site(number)
            await site.make()
            stack.push_async_callback(site.remove)
            engine = await asyncio.to_thread(
                EngineProcess, base / site.name, level="kubernetes", settings=settings,
                enter=site.enter,
            )  # fmt: skip
            stack.push_async_callback(asyncio.to_thread, engine.end)
            assert "socket" in engine.hello, engine.hello
            made.append((site, engine))
        yield made
