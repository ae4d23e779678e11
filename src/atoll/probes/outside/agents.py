"""27: agents that were taken over, each asked everything the engine asks an agent.

A listener of ours takes the name of the agent's socket in the directory of the sandbox, or the file there
names our address for the agent's, so that the engine, which is as it always is, connects to it. The engine has to end every call in its time with a
typed error or what looks like an answer, within bounds of memory, and serve others meanwhile.
"""

import asyncio
import ipaddress
import itertools
import json
import os
import socket
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2

from atoll.errors import NotSupportedByRuntimeError
from atoll.probes import calls
from atoll.probes.box import Box
from atoll.probes.outside import peers
from atoll.probes.outside.peers import Peer
from atoll.probes.site import Site
from atoll.runtime.base import ADDRESS_FILE
from atoll.wire import ops
from atoll.wire.agent import AGENT_PORT
from atoll.wire.ops import Kind, Op

LATEST = 20.0
"""Seconds for a call to an agent that answers, whatever it says."""

LATEST_SILENT = 150.0
"""Seconds for a call to one that does not: a backup waits two minutes for a sign of life."""

MEMORY = 400 << 20
"""Bytes that the engine may grow by while all of them answer at the same time."""

_LONG = frozenset({ops.GIT_CHECKOUT, ops.CREATE_BACKUP})
"""What goes on as long as its agent tells of progress: the first by its own limit of time, the second
by one of size."""

_AFTER = frozenset({
    ops.DESTROY, ops.STOP, ops.SLEEP, ops.START, ops.RESTORE, ops.FORK, ops.TAKE_SNAPSHOT,
    ops.ENSURE,
})  # fmt: skip
"""What ends or replaces the agent; asked when all else is done."""

_ENDLESS = 2.0  # seconds that a stream is read
_READ = 1 << 22  # bytes of it
_BACKLOG = 4_096
_FIRST_ADDRESS = ipaddress.IPv4Address("127.27.0.1")
_numbers = itertools.count()
_QUIET = 7  # commands of a neighbour before anybody is hostile
_USUAL, _WORST = 1.0, 8.0
"""Seconds that a neighbour's command may take besides `_SLOWER` times what it takes when all is quiet.

All agents answer at once from this process, on the processors of the engine and the neighbour: on two of them
commands of 12 ms (level container) had a median of 0.8 s, those of 0.1 s (level gvisor, ptrace) of 1.1 to 1.7 s.
"""
_SLOWER = 10


def hostile_agents(site: Site, among: Mapping[str, Peer] = peers.PEERS) -> list[str]:
    """27: agents that lie, or never stop talking."""
    return asyncio.run(_all(site, among, LATEST))


def silent_agents(site: Site) -> list[str]:
    """27: agents that say nothing, or a byte a second."""
    return asyncio.run(_all(site, peers.SILENT, LATEST_SILENT))


async def _all(site: Site, among: Mapping[str, Peer], latest: float) -> list[str]:
    neighbour = site.box()
    with ExitStack() as stack:
        taken = {}
        for name, peer in among.items():
            taken[name] = site.box()
            stack.enter_context(_newest_taken_over(site, peer))
        before = _memory(site.pid)
        watch = _Watch(site, neighbour, await asyncio.to_thread(_usual, neighbour))
        watching = asyncio.create_task(watch.run())
        try:
            asked = (_ask_all(site, name, box, latest) for name, box in taken.items())
            found = [one for some in await asyncio.gather(*asked) for one in some]
        finally:
            watching.cancel()
        found += watch.found(before)
        for name, box in taken.items():
            found += await _ended(site, name, box, latest)
    return found


@contextmanager
def _newest_taken_over(site: Site, peer: Peer) -> Iterator[None]:
    """Answer in the place of the agent of the sandbox that was started last."""
    path = _newest_way(site)
    listener = _at_its_address(path) if path.name == ADDRESS_FILE else _with_its_name(path)
    threading.Thread(target=_accept, args=(listener, peer), daemon=True).start()
    try:
        yield
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _newest_way(site: Site) -> Path:
    """Return the socket of the newest agent, or the file with its address where it has none.

    Raises:
        NotSupportedByRuntimeError: agents are reached in another way here.
    """
    names = ("agent.sock", ADDRESS_FILE)
    ways = [path for name in names for path in site.state_dir.glob(f"run/**/{name}")]
    if not ways:
        raise NotSupportedByRuntimeError("agents of this level are not reached from this host")
    return max(ways, key=lambda path: path.stat().st_ctime_ns)


def _with_its_name(path: Path) -> socket.socket:
    """Return a listener that has the name of the agent's socket."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    listener.bind(f"/proc/self/fd/{folder}/taken.sock")
    listener.listen(_BACKLOG)
    (path.parent / "taken.sock").rename(path)
    os.close(folder)
    return listener


def _at_its_address(path: Path) -> socket.socket:
    """Return a listener at an address of the loopback, which becomes the agent's."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    address = str(_FIRST_ADDRESS + next(_numbers))
    listener.bind((address, AGENT_PORT))
    listener.listen(_BACKLOG)
    draft = path.with_name("taken-address")
    draft.write_text(address)
    draft.rename(path)
    return listener


def _accept(listener: socket.socket, peer: Peer) -> None:
    with suppress(OSError):
        while True:
            connection = listener.accept()[0]
            threading.Thread(target=_serve, args=(connection, peer), daemon=True).start()


def _serve(connection: socket.socket, peer: Peer) -> None:
    with connection, suppress(OSError):
        connection.recv(1 << 16)
        peer(connection)


async def _ask_all(site: Site, name: str, box: Box, latest: float) -> list[str]:
    places = {"namespace": box.namespace, "id": box.id}
    made = [calls.request(op, **places) for op in calls.TABLE
            if "{id}" in op.path and op not in _AFTER]  # fmt: skip
    transport = httpx2.AsyncHTTPTransport(
        uds=site.hello["socket"], limits=httpx2.Limits(max_connections=None)
    )
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://engine", timeout=latest
    ) as client:
        told = await asyncio.gather(*(_ask(client, one, latest) for one in made))
    return [f"{name}: {one.op.name}: {what}" for one, what in zip(made, told, strict=True) if what]


async def _ask(client: httpx2.AsyncClient, made: calls.Request, latest: float) -> str:
    """Return what is wrong with the answer; empty when nothing is."""
    endless = made.op.kind in {Kind.STREAM, Kind.DOWNLOAD} or made.op.waits or made.op in _LONG
    began = time.monotonic()
    try:
        async with asyncio.timeout(_ENDLESS if endless else latest):
            async with client.stream(**made.arguments) as answer:
                return _judged(made.op, answer, await _beginning(answer))
    except httpx2.TransportError:
        return ""  # an answer that was begun is cut: there is no other way to tell
    except TimeoutError:
        return "" if endless else f"no answer in {time.monotonic() - began:.0f} s"


async def _beginning(answer: httpx2.Response) -> bytes:
    body = bytearray()
    async for chunk in answer.aiter_raw():
        body += chunk
        if len(body) > _READ:
            break
    return bytes(body)


def _judged(op: Op[Any, Any], answer: httpx2.Response, body: bytes) -> str:
    del op
    if not answer.is_error:
        return ""
    try:
        code = json.loads(body)["code"]
    except (ValueError, KeyError, TypeError):
        return f"an error without a type: {answer.status_code} {body[:80]!r}"
    return "INTERNAL_ERROR" if code == "INTERNAL_ERROR" else ""


def _usual(neighbour: Box) -> float:
    """Return the seconds that a command takes when all is quiet."""
    took = []
    for _ in range(_QUIET):
        began = time.monotonic()
        neighbour.run("true")
        took.append(time.monotonic() - began)
    return statistics.median(took)


class _Watch:
    """Looks at the engine's memory and at how long a neighbour's commands take, all the time."""

    def __init__(self, site: Site, neighbour: Box, quiet: float) -> None:
        self._site, self._neighbour, self._quiet = site, neighbour, quiet
        self._memory: list[int] = []
        self._took: list[float] = []
        self._failed: dict[str, int] = defaultdict(int)

    async def run(self) -> None:
        while True:
            began = time.monotonic()
            try:
                await asyncio.to_thread(self._neighbour.run, "true")
            except Exception as error:  # noqa: BLE001  # whatever it is, it is what is told
                self._failed[type(error).__name__] += 1
            self._took.append(time.monotonic() - began)
            self._memory.append(_memory(self._site.pid))
            await asyncio.sleep(0.1)

    def found(self, before: int) -> list[str]:
        """Return what was out of bounds."""
        grown = max(self._memory, default=before) - before
        found = [f"commands of a neighbour failed: {name}" for name in self._failed]
        if grown > MEMORY:
            found.append(f"the engine grew by {grown >> 20} MiB")
        slower = self._quiet * _SLOWER
        usual, worst = statistics.median(self._took or [0.0]), max(self._took, default=0.0)
        if usual > _USUAL + slower or worst > _WORST + slower:
            found.append(f"commands of a neighbour: {usual:.1f} s, at worst {worst:.1f} s, "
                         f"{self._quiet:.2f} s when all is quiet")  # fmt: skip
        return found


def _memory(pid: int) -> int:
    """Return the resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * os.sysconf(
        "SC_PAGE_SIZE"
    )


async def _ended(site: Site, name: str, box: Box, latest: float) -> list[str]:
    """Ask for a snapshot, sleep and the end; the last must succeed, whatever the agent says."""
    places = {"namespace": box.namespace, "id": box.id}
    found = []
    for op in (ops.TAKE_SNAPSHOT, ops.SLEEP, ops.DESTROY):
        began = time.monotonic()
        answer = await asyncio.to_thread(_answered, site, calls.request(op, **places), latest)
        if answer is None:
            found.append(f"{name}: {op.name}: no answer in {time.monotonic() - began:.0f} s")
        elif wrong := _judged(op, answer, answer.content):
            found.append(f"{name}: {op.name}: {wrong}")
        elif op is ops.DESTROY and answer.is_error:
            found.append(f"{name}: cannot be destroyed: {answer.text[:200]}")
    return found


def _answered(site: Site, made: calls.Request, latest: float) -> httpx2.Response | None:
    with suppress(httpx2.TimeoutException):
        return site.client.request(**made.arguments, timeout=latest)
    return None
