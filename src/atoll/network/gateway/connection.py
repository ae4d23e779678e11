"""A redirected connection: found out what it is, decided, carried out, written down.

What it is, the client's first bytes say, also when they come late (`opening`). Where it was going, the
kernel says.
"""

import asyncio
import socket
import ssl
import struct
import time
from contextlib import suppress
from typing import Literal

from atoll.host.pump import Channel
from atoll.network.gateway import clienthello, narrow, peeking
from atoll.network.gateway.dialing import reason
from atoll.network.gateway.handshake import Follower
from atoll.network.gateway.opening import FIRST_BYTES, Opening
from atoll.network.gateway.protocol import Decision
from atoll.network.gateway.requests import Requests, Whence
from atoll.network.gateway.sandbox import Sandbox
from atoll.network.gateway.shared import Shared
from atoll.network.gateway.sniff import Kind
from atoll.network.gateway.tunnel import Counts, tunnel
from atoll.network.policy import Outbound, Protocol, Verdict

WEB_PORTS = frozenset({80, 443})

HANDSHAKE = 15.0
"""Seconds that TLS with the client may take."""

_AT_ONCE = struct.pack("ii", 1, 0)
"""Linger of 0 s: closing resets the connection."""


class Connection:
    """One connection of a sandbox.

    Args:
        shared: of the gateway.
        sandbox: whose it is.
        client: its socket, not blocking.
        address: where it was going.
        port: likewise.
    """

    def __init__(
        self, shared: Shared, sandbox: Sandbox, client: socket.socket, address: str, port: int
    ) -> None:
        self._shared = shared
        self._sandbox = sandbox
        self._client = client
        self._high = narrow.high(len(sandbox.connections))
        self._address = address
        self._port = port
        self._names = sandbox.names(address)
        self._begun = time.time()
        self._counts = Counts()
        self._server: socket.socket | None = None
        self._opening = Opening(
            client, self._connected, may_connect=self._may_connect, web=port in WEB_PORTS
        )
        self._seen = Outbound(protocol="tcp", address=address, port=port)
        self._decided_once = False
        self._requests: Requests | None = None
        self._noted = self._cut = False
        self._orderly = False  # the client gets all that was sent, then an end
        self._task: asyncio.Task[None] | None = None

    def outbound(self) -> Outbound | None:
        """Return what it was let out for."""
        if self._requests:
            return self._requests.outbound
        return self._seen if self._decided_once else None

    def cut(self) -> None:
        """End it at once."""
        self._cut = True
        if self._task:
            self._task.cancel()

    async def run(self) -> None:
        """Serve it to its end."""
        self._task = asyncio.current_task()
        self._sandbox.connections.add(self)
        try:
            await self._serve()
        except (OSError, clienthello.Malformed) as error:
            self._ended("failed", reason(error))
        except Exception:
            self._ended("failed", "the gateway failed")
            raise
        except asyncio.CancelledError:
            self._ended("refused", "cut: the policy changed")
            if not self._cut:
                raise
        finally:
            self._sandbox.connections.discard(self)
            self._close()

    def _close(self) -> None:
        for server in (self._server, self._opening.server):
            if server:
                server.close()
        if self._requests:
            return  # its channel has the socket
        if not self._orderly:
            with suppress(OSError):
                self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._client.close()

    async def _serve(self) -> None:
        if self._sandbox.policy.direct:  # only the address decides
            await self._tcp()
            return
        try:
            async with asyncio.timeout(FIRST_BYTES) as limit:
                kind = await self._opening.kind(limit)
                hello = await self._hello() if kind is Kind.TLS else None
        except TimeoutError:
            self._ended("refused", "it did not say in time what it wants")
            return
        if hello:
            await self._tls(hello)
        elif kind is Kind.DISGUISED:
            verdict = self._decided("tls")
            rule = verdict.rule if verdict.action == "refuse" else "TLS without a plain ClientHello"
            self._ended("refused", rule)
        elif kind is Kind.HTTP:
            await self._serve_requests(None)
        else:
            await self._tcp()

    # What it is

    def _may_connect(self) -> bool:
        return self._port not in WEB_PORTS and self._decided("tcp").action == "allow"

    async def _connected(self) -> socket.socket:
        try:
            return await self._shared.dialer.connect(self._address, self._port)
        except TimeoutError as error:
            raise OSError("the server does not answer") from error

    async def _hello(self) -> clienthello.ClientHello:
        seen = 0
        while True:
            data = peeking.peek(self._client, clienthello.MAX)
            if found := clienthello.read(data):
                return found
            if len(data) == seen:
                raise clienthello.Malformed("it ended within the ClientHello")
            seen = len(data)
            await peeking.readable(self._client, seen)

    # What is done with it

    async def _tcp(self) -> None:
        verdict = self._decided("tcp")
        if verdict.action != "allow":
            self._ended("refused", verdict.rule)
            return
        await self._pass(verdict)

    async def _tls(self, hello: clienthello.ClientHello) -> None:
        verdict = self._decided("tls", hello.server_name)
        if verdict.action == "refuse":
            self._ended("refused", verdict.rule)
        elif verdict.intercept:
            await self._open(hello, verdict)
        elif hello.encrypted:
            self._ended("refused", "encrypted ClientHello")
        elif verdict.action != "allow":
            self._ended("refused", verdict.rule)
        else:
            await self._pass(verdict, Follower(hello))

    async def _pass(self, verdict: Verdict, follower: Follower | None = None) -> None:
        """Carry the bytes as they are."""
        self._server = self._opening.server or await self._connected()
        self._counts.up += self._opening.taken()
        await tunnel(
            self._client,
            self._server,
            self._counts,
            self._sandbox.pieces,
            watch_up=follower.up if follower else None,
            watch_down=follower.down if follower else None,
        )
        self._orderly = True
        self._ended("allowed", verdict.rule)

    async def _open(self, hello: clienthello.ClientHello, verdict: Verdict) -> None:
        """Be the server of the TLS that begins, and look at the requests inside."""
        if self._sandbox.authority is None:
            self._ended("failed", "no authority to open TLS with")
            return
        # Without SNI the client may expect a certificate of the address, or of a name it did not say.
        named = dict.fromkeys(
            filter(None, (verdict.host, "" if hello.server_name else self._address))
        )
        context = self._shared.certificates.context(self._sandbox.authority, *named)
        try:
            await self._serve_requests(hello.server_name, context)
        except ssl.SSLError as error:
            self._ended("failed", f"the client does not take our certificate: {error.reason}")

    async def _serve_requests(
        self, server_name: str | None, tls: ssl.SSLContext | None = None
    ) -> None:
        """Serve requests, each of which is decided and written down by itself."""
        # Made before: with TLS, uvloop returns a protocol of its own.
        channel = Channel(self._client_gone, self._high)
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: narrow.protocol(channel),
            self._client,
            ssl=tls,
            ssl_handshake_timeout=HANDSHAKE if tls else None,
        )
        place = Whence(self._address, self._port, self._names, server_name)
        self._requests = Requests(self._shared, self._sandbox, channel, place)
        self._noted = True
        await self._requests.serve()

    def _client_gone(self) -> None:
        if self._requests:
            self._requests.client_gone()

    # Decisions

    def _decided(self, protocol: Protocol, host: str = "") -> Verdict:
        self._decided_once = True
        self._seen = Outbound(
            protocol=protocol,
            host=host,
            address=self._address,
            port=self._port,
            names=self._names,
        )
        return self._sandbox.decide(self._seen)

    def _ended(self, verdict: Literal["allowed", "refused", "failed"], rule: str) -> None:
        if self._noted:
            return
        self._noted = True
        self._sandbox.note(
            Decision(
                time=self._begun,
                protocol=self._seen.protocol,
                host=self._seen.host[:300] or next(iter(self._names), ""),
                address=self._address,
                port=self._port,
                verdict=verdict,
                rule=rule,
                bytes_up=self._counts.up,
                bytes_down=self._counts.down,
                ms=round((time.time() - self._begun) * 1_000, 1),
            )
        )
