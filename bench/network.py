"""The network of a sandbox beside the host's own: translated by the kernel, and by the gateway.

All of it in namespaces made here: a host with a slot, and behind it one server that sends, echoes and
accepts. The server and its visitor are plain sockets, so what is between them is what is measured.
"""

import asyncio
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from atoll.engine.egress import effective
from atoll.engine.egress.bounds import Bounds
from atoll.engine.egress.enforcing import Enforcing
from atoll.engine.egress.gateway import NodeGateway
from atoll.engine.egress.stored import Egress
from atoll.host import linux
from atoll.network import netns, plan
from atoll.network.slots import NetworkSlots
from atoll.network_settings import NetworkSettings
from atoll.wire.egress import EgressDefaults
from bench.table import Report, Row, Samples

SERVER, HOST = "203.0.113.80", "203.0.113.1"
SEND, ECHO = 7_001, 7_002
WORD = bytes(range(16))
"""What is said: no gateway has to wait for more of it to know what it begins."""
AT_ONCE = 8
"""Visitors that connect at the same time."""
ROUNDS = 5
"""Turns that the ways take, so that what else the machine does hits all."""


async def measure(report: Report, megabytes: int, connections: int) -> None:
    """Add the rows; a host without root or nftables has none."""
    if os.geteuid():
        report.skip("network", "needs root")
        return
    # In a loop of its own: the threads of this one stay in the namespace they began in.
    await asyncio.to_thread(lambda: asyncio.run(_in_host(report, megabytes, connections)))


async def _in_host(report: Report, megabytes: int, connections: int) -> None:
    with _host() as (namespace, folder):
        threading.Thread(target=_serve, args=(namespace, SEND, _send), daemon=True).start()
        threading.Thread(target=_serve, args=(namespace, ECHO, _echo), daemon=True).start()
        settings = NetworkSettings(nameservers=(SERVER,), prepared=0)
        slots = NetworkSlots(settings, "bench", base=folder / "netns")
        await slots.open()
        uid, bounds = plan.gateway_uid("bench"), Bounds("bench", settings.gateway_memory_mib << 20)
        gateway = NodeGateway(folder / "egress", (SERVER,), slots, uid, bounds)
        await gateway.open()
        try:
            await _ways(report, Enforcing(slots, settings, gateway), slots, megabytes, connections)
        finally:
            await slots.release("box")
            await gateway.close(stop=True)
            await slots.close()


async def _ways(
    report: Report, enforcing: Enforcing, slots: NetworkSlots, megabytes: int, connections: int
) -> None:
    slot = await slots.acquire("box")
    ways: dict[str, tuple[Path | None, tuple[str, ...] | None]] = {
        "host": (None, None), "direct": (slot.netns, ()), "gateway": (slot.netns, (SERVER,)),
    }  # fmt: skip
    found: dict[str, dict[str, list[float]]] = {way: {} for way in ways}
    for _ in range(ROUNDS):
        for way, (place, allowed) in ways.items():
            if allowed is not None:
                await enforcing.enforce("box", _policy(allowed))
            for what, values in (await _measured(place, megabytes, connections)).items():
                found[way].setdefault(what, []).extend(values)
    whats = (("MB/s", "MB/s"), ("connections", "1/s"), ("connect", "ms"), ("echo", "ms"))
    for way, goals in (("direct", (0.8, 0.7, 1.5, 1.5)), ("gateway", (0.1, 0.1, 12, 6))):
        for (what, unit), goal in zip(whats, goals, strict=True):
            report.add(
                Row(
                    f"network {way}: {what}",
                    Samples(found[way][what]),
                    "the host itself",
                    Samples(found["host"][what]),
                    goal,
                    at_least=unit != "ms",
                    unit=unit,
                )
            )


def _policy(allowed: tuple[str, ...]) -> Any:
    return effective.policy(
        ("bench", "box"),
        Egress(allowed=allowed),
        EgressDefaults(),
        NetworkSettings(),
        internet=True,
    )


async def _measured(place: Path | None, megabytes: int, connections: int) -> dict[str, list[float]]:
    def visit() -> dict[str, list[float]]:
        return {
            "MB/s": [_throughput(megabytes)],
            "connections": [_rate(connections)],
            "connect": [_connect() for _ in range(connections)],
            "echo": _echoes(connections),
        }

    if place is None:
        return await asyncio.to_thread(visit)
    return await asyncio.to_thread(netns.call_in, place, visit)


def _throughput(megabytes: int) -> float:
    left, buffer = megabytes * 10**6, bytearray(1 << 18)
    began = time.perf_counter()
    with socket.create_connection((SERVER, SEND), timeout=30) as made:
        while left > 0 and (count := made.recv_into(buffer)):
            left -= count
    return megabytes / (time.perf_counter() - began)


def _rate(count: int) -> float:
    """Connections a second that are made, have their first word echoed, and end."""
    began = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as visitors:  # they are where this thread is
        list(visitors.map(lambda _: _connect(), range(count)))
    return count / (time.perf_counter() - began)


def _connect() -> float:
    """Seconds until a new connection has had its first word echoed."""
    began = time.perf_counter()
    with socket.create_connection((SERVER, ECHO), timeout=30) as made:
        made.sendall(WORD)
        made.recv(len(WORD))
    return time.perf_counter() - began


def _echoes(count: int) -> list[float]:
    times = []
    with socket.create_connection((SERVER, ECHO), timeout=30) as made:
        for _ in range(count):
            began = time.perf_counter()
            made.sendall(WORD)
            made.recv(len(WORD))
            times.append(time.perf_counter() - began)
    return times


def _send(made: socket.socket) -> None:
    block = bytes(1 << 18)
    while True:
        made.sendall(block)


def _echo(made: socket.socket) -> None:
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := made.recv(1_000):
        made.sendall(data)


def _serve(namespace: Path, port: int, handle: Callable[[socket.socket], None]) -> None:
    listener = netns.call_in(namespace, lambda: socket.create_server((SERVER, port), backlog=512))

    def one(made: socket.socket) -> None:
        with made:
            try:
                handle(made)
            except OSError:
                return

    while True:
        made, _ = listener.accept()
        threading.Thread(target=one, args=(made,), daemon=True).start()


@contextmanager
def _host() -> Iterator[tuple[Path, Path]]:
    """Put the calling thread into a namespace of its own with a server behind it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="atoll-bench-")))
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, home)
        linux.unshare(linux.CLONE_NEWNET)
        stack.callback(linux.setns, home, linux.CLONE_NEWNET)
        namespace = folder / "server"
        stack.callback(netns.forget, namespace)
        netns.call_in_new(lambda: netns.keep(namespace))
        inside = os.open(namespace, os.O_RDONLY)
        _ip("link set lo up", "link add up0 type veth peer name down0",
            f"link set down0 netns /proc/{os.getpid()}/fd/{inside}",
            f"addr add {HOST}/24 dev up0", "link set up0 up",
            f"route add default via {SERVER}")  # fmt: skip
        netns.call_in(
            namespace,
            lambda: _ip("link set lo up", f"addr add {SERVER}/24 dev down0", "link set down0 up"),
        )
        os.close(inside)
        yield namespace, folder


def _ip(*commands: str) -> None:
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)
