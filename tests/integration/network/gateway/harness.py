"""A gateway in this process with an internet on the loopback interface."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rrset

from atoll.network.gateway import log
from atoll.network.gateway.certificates import Certificates, new_authority
from atoll.network.gateway.dialing import Dialer
from atoll.network.gateway.handover import Listeners
from atoll.network.gateway.nameservers import Nameservers
from atoll.network.gateway.protocol import (
    Authority,
    Call,
    Decision,
    HandlerAnswer,
    Noticed,
    Put,
    Unanswered,
)
from atoll.network.gateway.service import Service
from atoll.network.gateway.shared import Shared
from atoll.network.policy import SandboxPolicy

LOCAL = ("127.0.0.0/8",)
SANDBOX, NEIGHBOUR = "127.0.1.1", "127.0.1.2"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def policy(**fields: Any) -> SandboxPolicy:
    """Return a policy of the sandbox at `SANDBOX` that may reach this machine."""
    fields = {"opened": LOCAL, "addresses": (SANDBOX,), "host_ref": "box"} | fields
    return SandboxPolicy(key="default/box", **fields)


class Names:
    """A resolver: `table` is what it knows, `asked` what it was asked."""

    def __init__(self) -> None:
        self.table: dict[tuple[str, str], list[str]] = {}
        self.asked: list[tuple[str, str]] = []
        self.aliases: dict[str, str] = {}
        self.lower_case = self.truncate = False
        self.port = 0

    def answer(self, data: bytes, *, tcp: bool) -> bytes:
        """Return the answer to a question."""
        query = dns.message.from_wire(data)
        question = query.question[0]
        name = question.name.to_text(omit_final_dot=True).lower()
        kind = question.rdtype.name
        self.asked.append((name, kind))
        reply = dns.message.make_response(query)
        if self.lower_case and not tcp:
            reply.question[0].name = dns.name.from_text(name)
        if self.truncate and not tcp:
            reply.flags |= dns.flags.TC
            return reply.to_wire()
        owner = question.name
        while (alias := self.aliases.get(name)) is not None:
            reply.answer.append(dns.rrset.from_text(owner, 0, "IN", "CNAME", alias + "."))
            owner, name = dns.name.from_text(alias), alias
        found = self.table.get((name, kind))
        if found:
            reply.answer.append(dns.rrset.from_text_list(owner, 0, "IN", kind, found))
        elif not any(known == name for known, _ in self.table):
            reply.set_rcode(dns.rcode.NXDOMAIN)
        return reply.to_wire()

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """Serve at a port of 127.0.0.1."""
        loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._tcp, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        transport, _ = await loop.create_datagram_endpoint(
            lambda: _Datagrams(self), local_addr=("127.0.0.1", self.port)
        )
        try:
            yield
        finally:
            transport.close()
            server.close()

    async def _tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(EOFError, OSError):
            length = int.from_bytes(await reader.readexactly(2), "big")
            answer = self.answer(await reader.readexactly(length), tcp=True)
            writer.write(len(answer).to_bytes(2, "big") + answer)
            await writer.drain()
        writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, names: Names) -> None:
        self._names = names

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._transport.sendto(self._names.answer(data, tcp=False), addr)


class Harness:
    """What a test has.

    Attributes:
        service: the gateway.
        names: the resolver behind it.
        calls: handlers that were called.
        noticed: refusals that an engine would be told of.
        authority: of servers that the gateway trusts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = Names()
        self.calls: list[Call] = []
        self.handle: Callable[[Call], Awaitable[HandlerAnswer]] = self._no_handler
        self.authority = new_authority("internet")
        self.own = new_authority("sandbox")
        self._servers = Certificates(folder)
        trust = ssl.create_default_context(cadata=self.authority.certificate)
        dialer = Dialer(trust, own=lambda address: address == "127.0.66.66")
        certificates = Certificates(folder)
        self.noticed: list[Noticed] = []
        self.shared = Shared(dialer, certificates, Nameservers(), self._call, self.noticed.append)
        self.service = Service(self.shared, folder, self._destination)
        self._targets: dict[Any, tuple[str, int]] = {}
        self._stack = AsyncExitStack()
        self.listeners = Listeners(
            (_bound(socket.SOCK_STREAM, 0),),
            (tcp := _bound(socket.SOCK_STREAM, 0),),
            (_bound(socket.SOCK_DGRAM, tcp.getsockname()[1]),),
        )

    def put(self, policy: SandboxPolicy, authority: Authority | None = None) -> None:
        """Put a policy in force."""
        self.service.put(Put(policy=policy, log=policy.host_ref, authority=authority or self.own))

    def log(self, host_ref: str = "box") -> list[Decision]:
        """Return what was decided, the oldest first."""
        return list(log.read(self.folder, host_ref))

    async def last(self, protocol: str, host_ref: str = "box") -> Decision:
        """Return the last decision about *protocol*, when there is one."""
        async with asyncio.timeout(10):
            while True:
                found = [one for one in self.log(host_ref) if one.protocol == protocol]
                if found:
                    return found[-1]
                await asyncio.sleep(0.01)

    def name(self, name: str, *addresses: str) -> None:
        """Have the internet know *name*."""
        self.names.table[name, "A"] = list(addresses)

    async def ask(
        self, name: str, kind: str = "A", source: str = SANDBOX, **options: Any
    ) -> dns.message.Message:
        """Ask the gateway's resolver as the sandbox does, by UDP."""
        query = dns.message.make_query(name, kind, **options)
        return dns.message.from_wire(await self.ask_raw(query.to_wire(), source))

    async def ask_raw(self, data: bytes, source: str = SANDBOX, timeout: float = 10) -> bytes:
        """Send *data* to the gateway's resolver and return the answer."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.setblocking(False)
            asking.bind((source, 0))
            asking.connect(("127.0.0.1", self.dns_port))
            asking.send(data)
            async with asyncio.timeout(timeout):
                return await asyncio.get_running_loop().sock_recv(asking, 4_096)

    @property
    def dns_port(self) -> int:
        """Port of the gateway's resolver."""
        return int(self.listeners.dns_udp[0].getsockname()[1])

    async def addresses(self, name: str, source: str = SANDBOX) -> list[str]:
        """Return the addresses that the sandbox is told for *name*."""
        answer = await self.ask(name, source=source)
        return [record.to_text() for rrset in answer.answer for record in rrset]

    async def connect(
        self, address: str, port: int, source: str = SANDBOX, **tls: Any
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect as the sandbox does to *address*, which the packet filter redirects."""
        loop = asyncio.get_running_loop()
        made = socket.socket()
        made.setblocking(False)
        made.bind((source, 0))
        self._targets[made.getsockname()] = (address, port)
        await loop.sock_connect(made, self.listeners.connections[0].getsockname())
        return await asyncio.open_connection(sock=made, **tls)

    def trusting(self) -> ssl.SSLContext:
        """Return TLS that trusts the sandbox's own authority and that of the internet."""
        both = self.own.certificate + self.authority.certificate
        return ssl.create_default_context(cadata=both)

    async def exchange(
        self, address: str, port: int, sent: bytes, source: str = SANDBOX, **tls: Any
    ) -> bytes:
        """Connect, send and return all that comes; empty where the connection is reset."""
        received = b""
        with suppress(ConnectionError):
            reader, writer = await self.connect(address, port, source, **tls)
            try:
                writer.write(sent)
                async with asyncio.timeout(20):
                    while data := await reader.read(65_536):
                        received += data
            finally:
                writer.close()
                with suppress(ConnectionError, ssl.SSLError):
                    await writer.wait_closed()
        return received

    async def server(self, serve: Serve, address: str = "127.0.0.1", **options: Any) -> int:
        """Serve at a free port of *address*; return the port."""
        server = await asyncio.start_server(serve, address, 0, **options)
        self._stack.callback(server.close)
        return int(server.sockets[0].getsockname()[1])

    async def web(self, host: str = "", answer: bytes = b"hello") -> "Web":
        """Serve HTTP, or HTTPS with a certificate for *host*."""
        web = Web(answer)
        tls = self._servers.context(self.authority, host) if host else None
        web.port = await self.server(web.serve, ssl=tls)
        return web

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Harness"]:
        """Serve inside the block."""
        async with self._stack, self.names.served():
            self.service.configure((f"127.0.0.1#{self.names.port}",))
            self.service.open(self.listeners)
            try:
                yield self
            finally:
                await self.service.close()
                for group in self.listeners:
                    for one in group:
                        one.close()

    def _destination(self, client: socket.socket) -> tuple[str, int]:
        return self._targets.pop(client.getpeername())

    async def _call(self, call: Call) -> HandlerAnswer:
        self.calls.append(call)
        return await self.handle(call)

    async def _no_handler(self, call: Call) -> HandlerAnswer:
        return Unanswered(reason="the Worker is not running")


class Web:
    """A web server: `heads` are the requests it got, `bodies` what came with them."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        with suppress(EOFError, OSError, asyncio.LimitOverrunError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                self.bodies.append(await _body(head, reader))
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"
                    % (len(self.answer), self.answer)
                )
                await writer.drain()
                if b"\r\nconnection: close\r\n" in head.lower():
                    break
        writer.close()


async def _body(head: bytes, reader: asyncio.StreamReader) -> bytes:
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        return await reader.readuntil(b"0\r\n\r\n")
    if b"content-length: " in lower:
        return await reader.readexactly(int(lower.split(b"content-length: ")[1].split(b"\r")[0]))
    return b""


def _bound(kind: socket.SocketKind, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, kind)
    made.bind(("127.0.0.1", port))
    if kind == socket.SOCK_STREAM:
        made.listen(4_096)
    return made
