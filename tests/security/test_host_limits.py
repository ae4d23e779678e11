"""26: what the kernel counts once for the whole host, no sandbox can use up for the others."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from atoll.host import linux
from atoll.runtime.oci import cgroup_files
from atoll.wire.frames import Kind
from e2e.runtime.boxes import Bench, Box
from e2e.runtime.roots import ID_BASE

pytestmark = pytest.mark.e2e

_TAKE = """
import ctypes, os, signal, time
libc = ctypes.CDLL(None, use_errno=True)
signal.pthread_sigmask(signal.SIG_BLOCK, [40])

def terminal(n):
    try:
        os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return -1
    return 0

def inotify(n):
    return libc.inotify_init1(0)

def queued_signal(n):
    return libc.sigqueue(os.getpid(), 40, None)

def message_queue(n):
    return libc.syscall({mq_open}, b"q%d" % n, 0o102, 0o600, None)

taken = 0
while taken < {most} and {what}(taken) >= 0:
    taken += 1
print(taken, flush=True)
time.sleep({hold})
"""


def take(box: Box, what: str, most: int = 1_000_000, hold: float = 0) -> int:
    mq_open = "240 if os.uname().machine == 'x86_64' else 180"
    return int(box.python(_TAKE.format(what=what, most=most, hold=hold, mq_open=mq_open)))


@asynccontextmanager
async def stranger(bench: Bench) -> AsyncIterator[Box]:
    """A sandbox of other ids, as any two have that an engine starts."""
    spec = bench.spec(id_base=ID_BASE + 65_536)
    for path in (spec.rootfs, spec.rootfs / "etc"):
        os.chown(path, spec.id_base, spec.id_base)
    yield Box(bench.runtime, spec, await bench.runtime.start(spec))
    await bench.runtime.remove(spec.host_ref)


LIMITS = ["terminal", "inotify", "queued_signal", "message_queue"]


@pytest.mark.parametrize("what", LIMITS)
async def test_one_sandbox_cannot_take_all(bench: Bench, what: str) -> None:
    """The first takes what it gets and holds it; another, of other ids, still gets one."""
    async with bench.running() as first, stranger(bench) as second:
        holding = asyncio.create_task(asyncio.to_thread(take, first, what, hold=2))
        await asyncio.sleep(1)
        other = await asyncio.to_thread(take, second, what, most=1)
        assert (other, await holding > 1) == (1, True)


async def test_a_sandbox_whose_namespace_root_owns_takes_all(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weakened run: what root on the host owns counts as root's."""
    owned = linux.user_namespace
    monkeypatch.setattr(linux, "user_namespace", lambda u, g, owner: owned(u, g))
    async with bench.running() as first, stranger(bench) as second:
        holding = asyncio.create_task(asyncio.to_thread(take, first, "message_queue", hold=2))
        await asyncio.sleep(1)
        assert await asyncio.to_thread(take, second, "message_queue", most=1) == 0
        assert await holding > 1


_QUEUE = """
import resource, socket
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
pairs, queued = [], 0
while queued < {most} and len(pairs) < 300:
    sender = socket.create_connection(listener.getsockname())
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
    sender.setblocking(False)
    pairs.append((sender, listener.accept()[0]))
    try:
        while queued < {most}:
            queued += sender.send(bytes(1 << 16))
    except BlockingIOError:
        pass
print(queued)
"""
_QUEUED = 100 << 20


async def queued(bench: Bench) -> int:
    """Bytes that a sandbox of 64 MiB has the kernel keep for sockets that nobody reads."""
    async with bench.running(memory=64 << 20) as box:
        done = box.exec(box.argv(_QUEUE.format(most=_QUEUED)))
        return int(done.stdout or 0)  # or it was ended for lack of memory


async def test_what_sockets_queue_has_an_end(bench: Bench) -> None:
    """Memory of TCP is one for the whole host: a sandbox of 256 MiB once took 2.2 GB, and all of it."""
    assert await queued(bench) < 64 << 20


@pytest.mark.slow
@pytest.mark.skipif(
    not os.path.isdir("/sys/fs/cgroup/memory"), reason="cgroup v2 counts it as memory"
)
async def test_sockets_without_a_limit_are_noticed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weakened run."""
    write = cgroup_files.write

    def without(path: Path, value: object) -> None:
        if "kmem" not in path.name:
            write(path, value)

    monkeypatch.setattr(cgroup_files, "write", without)
    assert await queued(bench) >= _QUEUED


_UNREAD = """
import socket, struct, time
request = struct.pack("=IHHII", 16, 99, 0x5, 1, 0)
sockets = [socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) for _ in range(200)]
for each in sockets:
    for _ in range(100):
        each.send(request)
print("done", flush=True)
time.sleep(60)
"""


async def test_what_netlink_keeps_for_a_sandbox_is_seen(bench: Bench) -> None:
    """It is in no limit: the engine stops who has much of it when the host runs low."""
    async with bench.running() as box:
        assert (await bench.runtime.usage(box.spec.host_ref)).uncounted == 0
        with box.start(box.argv(_UNREAD), id="unread") as connection:
            connection.until(Kind.STDOUT)
            used = await bench.runtime.usage(box.spec.host_ref)
            assert used.uncounted > 10 << 20
            connection.send(Kind.CANCEL)


async def test_a_sandbox_has_an_end_of_terminals(bench: Bench) -> None:
    """The weakened run, without ``max=256``, gets what the host has (4,096)."""
    async with bench.running() as box:
        assert take(box, "terminal", most=300) == 256
