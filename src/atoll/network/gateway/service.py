"""The gateway: takes connections and questions in, and finds out whose they are and where they go.

Listeners on the host are those of all sandboxes, which their source addresses tell apart; an unknown one
gets nothing, neither a connection nor an answer. Listeners in a sandbox's network are its own. Everything is bounded: by
sandbox (`SandboxPolicy.max_connections`, queries) and in all.
"""

import asyncio
import ipaddress
import resource
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import structlog

from atoll.network import hosts
from atoll.network.gateway.connection import Connection
from atoll.network.gateway.handover import Handover, Listeners
from atoll.network.gateway.nameservers import Nameservers
from atoll.network.gateway.protocol import VERSION as PROTOCOL_VERSION
from atoll.network.gateway.protocol import Decision, Pin, PinList, Put, StatusReport
from atoll.network.gateway.resolver import MAX_QUERY, Resolver
from atoll.network.gateway.sandbox import Sandbox
from atoll.network.gateway.shared import Shared

MAX_CONNECTIONS = 16_384
"""Connections of all sandboxes, if there are descriptors for them: each takes two."""

SPARE = 512
"""Descriptors that no connection takes: of names that are looked up, listeners, logs."""

MAX_QUERIES = 2_048
"""Names that are looked up at the same time for all sandboxes."""

BATCH = 64
"""Connections or questions that are taken at once, before others have their turn."""

DNS_IDLE = 10.0
"""Seconds that a connection of the resolver may be silent, or a question on it may take to come."""

MAX_DNS_CONNECTIONS = 16
"""Connections to the resolver of one sandbox."""

_ORIGINAL_DST = 80
_IP_PKTINFO, _IPV6_PKTINFO, _IPV6_RECVPKTINFO = 8, 50, 49

_log = structlog.get_logger(__name__)


Whose: TypeAlias = Callable[[str], Sandbox | None]
"""Tells by the address that something comes from whose it is."""


def original_destination(connection: socket.socket) -> tuple[str, int]:
    """Return where a redirected connection was going.

    Raises:
        OSError: it was not redirected.
    """
    if connection.family == socket.AF_INET6:
        raw = connection.getsockopt(socket.IPPROTO_IPV6, _ORIGINAL_DST, 28)
        port, address = struct.unpack_from(">2xH4x16s", raw)
        found = str(ipaddress.IPv6Address(address)), int(port)
    else:
        raw = connection.getsockopt(socket.IPPROTO_IP, _ORIGINAL_DST, 16)
        port, address = struct.unpack_from(">2xH4s", raw)
        found = str(ipaddress.IPv4Address(address)), int(port)
    if found == connection.getsockname()[:2]:
        raise OSError("the connection was made to the gateway itself")
    return found


class Service:
    """The gateway of a node.

    Args:
        shared: what its connections need.
        logs: folder of the logs of sandboxes.
        destination: tells where a connection was going.
        handover: where listeners of sandboxes come; None: all come by `open`.
    """

    def __init__(
        self,
        shared: Shared,
        logs: Path,
        destination: Callable[[socket.socket], tuple[str, int]] = original_destination,
        handover: socket.socket | None = None,
    ) -> None:
        self._shared = shared
        self._logs = logs
        self._destination = destination
        self._resolver = Resolver(shared.nameservers)
        self._sandboxes: dict[str, Sandbox] = {}
        self._by_address: dict[str, Sandbox] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections = self._queries = 0
        self._dns_connections: dict[Sandbox, int] = {}
        self._readers: list[socket.socket] = []
        self._handed = Handover(handover) if handover else None
        self._of_sandboxes: dict[str, Listeners] = {}
        self._begun = time.monotonic()
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._room = max(1, min(MAX_CONNECTIONS, (descriptors - SPARE) // 2))

    # What the engine asks

    def configure(self, nameservers: tuple[str, ...]) -> None:
        """Ask these resolvers from now on."""
        self._shared.nameservers = self._resolver.nameservers = Nameservers(nameservers)

    def put(self, put: Put) -> None:
        """Add a sandbox or change its policy.

        Raises:
            ValueError: an address is another sandbox's, or the log has no proper name.
        """
        host_ref = put.policy.host_ref
        addresses = [str(hosts.address(address)) for address in put.policy.addresses]
        known = self._sandboxes.get(host_ref)
        if any(self._by_address.get(address, known) is not known for address in addresses):
            raise ValueError("an address belongs to another sandbox")
        if known is None:
            shared = self._shared
            known = self._sandboxes[host_ref] = Sandbox(
                put, self._logs, shared.bodies, shared.pieces, shared.notice
            )
        elif put.policy.version < known.policy.version:
            return
        else:
            known.change(put)
        self._forget_addresses(known)
        self._by_address.update(dict.fromkeys(addresses, known))

    def remove(self, host_ref: str) -> None:
        """Forget a sandbox; nothing happens when it is not known."""
        self._let_go(host_ref)
        if known := self._sandboxes.pop(host_ref, None):
            self._forget_addresses(known)
            known.close()

    def versions(self) -> dict[str, int]:
        """Return the version of each sandbox's policy by host_ref."""
        return {ref: sandbox.policy.version for ref, sandbox in self._sandboxes.items()}

    def status(self, pid: int) -> StatusReport:
        """Return how it does."""
        return StatusReport(
            version=PROTOCOL_VERSION,
            pid=pid,
            uptime=time.monotonic() - self._begun,
            sandboxes={ref: sandbox.status() for ref, sandbox in self._sandboxes.items()},
        )

    def pins(self, host_ref: str) -> PinList:
        """Return the pins of a sandbox."""
        known = self._sandboxes.get(host_ref)
        found = known.pins.listed(time.monotonic()) if known else ()
        return PinList(pins=[Pin(name=n, address=a, seconds=s) for n, a, s in found])

    def _forget_addresses(self, sandbox: Sandbox) -> None:
        kept = {a: s for a, s in self._by_address.items() if s is not sandbox}
        self._by_address = kept

    # Taking in

    def open(self, listeners: Listeners) -> None:
        """Serve *listeners* from now on."""
        self._open(listeners, lambda peer: self._by_address.get(_plain(peer)))

    def take(self, host_ref: str) -> None:
        """Serve the listeners that were sent for a sandbox.

        Raises:
            ValueError: none were.
        """
        found = self._handed.taken(host_ref) if self._handed else None
        if found is None:
            raise ValueError("no listeners were sent for this sandbox")
        self._let_go(host_ref)
        self._of_sandboxes[host_ref] = found
        self._open(found, lambda _: self._sandboxes.get(host_ref))

    def _open(self, listeners: Listeners, whose: Whose) -> None:
        for listener in listeners.connections:
            self._watch(listener, partial(self._accept, listener, self._take, whose))
        for listener in listeners.dns_tcp:
            self._watch(listener, partial(self._accept, listener, self._take_dns, whose))
        for receiver in listeners.dns_udp:
            six = receiver.family == socket.AF_INET6
            level, option = (41, _IPV6_RECVPKTINFO) if six else (0, _IP_PKTINFO)
            receiver.setsockopt(level, option, 1)
            self._watch(receiver, partial(self._receive, receiver, whose))

    def _let_go(self, host_ref: str) -> None:
        if known := self._of_sandboxes.pop(host_ref, None):
            for one in (*known.connections, *known.dns_tcp, *known.dns_udp):
                asyncio.get_running_loop().remove_reader(one)
                self._readers.remove(one)
                one.close()

    async def close(self) -> None:
        """Take nothing more in and cut everything."""
        loop = asyncio.get_running_loop()
        for reader in self._readers:
            loop.remove_reader(reader)
        for host_ref in list(self._sandboxes):
            self.remove(host_ref)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _watch(self, reader: socket.socket, ready: Callable[[], None]) -> None:
        reader.setblocking(False)
        asyncio.get_running_loop().add_reader(reader, ready)
        self._readers.append(reader)

    def _accept(
        self,
        listener: socket.socket,
        take: Callable[[Sandbox, socket.socket], None],
        whose: Whose,
    ) -> None:
        for _ in range(BATCH):
            try:
                connection, peer = listener.accept()
            except OSError:  # no more, no descriptor left, or it is gone already
                return
            sandbox = whose(peer[0])
            if sandbox is None:
                connection.close()
            else:
                connection.setblocking(False)
                take(sandbox, connection)

    def _take(self, sandbox: Sandbox, client: socket.socket) -> None:
        try:
            address, port = self._destination(client)
        except OSError:
            client.close()
            return
        full = len(sandbox.connections) >= sandbox.policy.max_connections
        if full or self._connections >= self._room:
            client.close()
            sandbox.note(_full(address, port))
            return
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection = Connection(self._shared, sandbox, client, address, port)
        sandbox.connections.add(connection)
        self._connections += 1
        self._start(connection.run(), self._connection_ended)

    def _connection_ended(self) -> None:
        self._connections -= 1

    def _start(self, work: Any, ended: Callable[[], None]) -> None:
        def done(task: "asyncio.Task[None]") -> None:
            self._tasks.discard(task)
            ended()
            if not task.cancelled() and (error := task.exception()):
                _log.error("the gateway failed", exc_info=error)

        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(done)

    # Names

    def _receive(self, receiver: socket.socket, whose: Whose) -> None:
        for _ in range(BATCH):
            try:
                data, info, _, peer = receiver.recvmsg(MAX_QUERY + 1, 128)
            except OSError:
                return
            sandbox = whose(peer[0])
            if sandbox is None or self._queries >= MAX_QUERIES:
                continue
            self._queries += 1
            self._start(self._answer(receiver, sandbox, data, info, peer), self._query_ended)

    def _query_ended(self) -> None:
        self._queries -= 1

    async def _answer(
        self, receiver: socket.socket, sandbox: Sandbox, data: bytes, info: Any, peer: Any
    ) -> None:
        answer = await self._resolver.answer(sandbox, data)
        if answer:
            # From the address that was asked: the packet filter turns that back into the one
            # that the sandbox thinks it asked.
            with suppress(OSError):
                receiver.sendmsg([answer], _answering(info), 0, peer)

    def _take_dns(self, sandbox: Sandbox, client: socket.socket) -> None:
        count = self._dns_connections.get(sandbox, 0)
        if count >= MAX_DNS_CONNECTIONS:
            client.close()
            return
        self._dns_connections[sandbox] = count + 1
        self._start(self._converse(sandbox, client), lambda: self._dns_ended(sandbox))

    def _dns_ended(self, sandbox: Sandbox) -> None:
        self._dns_connections[sandbox] -= 1
        if not self._dns_connections[sandbox]:
            del self._dns_connections[sandbox]

    async def _converse(self, sandbox: Sandbox, client: socket.socket) -> None:
        """Answer questions by TCP, one after the other."""
        loop = asyncio.get_running_loop()
        with client, suppress(OSError, EOFError):
            while True:
                async with asyncio.timeout(DNS_IDLE):
                    length = int.from_bytes(await _exactly(client, 2), "big")
                    if length > MAX_QUERY:
                        return
                    data = await _exactly(client, length)
                answer = await self._resolver.answer(sandbox, data, 0xFFFF)
                if answer is None:
                    return
                async with asyncio.timeout(DNS_IDLE):
                    await loop.sock_sendall(client, len(answer).to_bytes(2, "big") + answer)


async def _exactly(client: socket.socket, count: int) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < count:
        more = await loop.sock_recv(client, count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _answering(info: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """Return the control message that sends from the address a question came to."""
    for level, kind, data in info:
        if (level, kind) == (0, _IP_PKTINFO):
            index, address = struct.unpack_from("=i4s", data)
            return [(level, kind, struct.pack("=i4s4s", index, address, bytes(4)))]
        if (level, kind) == (41, _IPV6_PKTINFO):
            return [(level, kind, data)]
    return []


def _plain(address: str) -> str:
    """Return an address as policies have it."""
    found = hosts.address(address.partition("%")[0])
    return str(found) if found else address


def _full(address: str, port: int) -> Decision:
    return Decision(
        time=time.time(),
        protocol="tcp",
        address=address,
        port=port,
        verdict="refused",
        rule="too many connections",
    )
