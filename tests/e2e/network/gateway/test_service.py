"""Probes 11 to 14 through the real gateway: what a sandbox tries, and what reached the internet."""

import asyncio
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import dns.message
import pytest

from atoll.network import netns
from atoll.network.gateway import log
from atoll.network.gateway.certificates import new_authority
from atoll.network.gateway.keeper import Keeper
from atoll.network.gateway.listening import Ports
from atoll.network.gateway.protocol import (
    Answered,
    Call,
    Decision,
    HandlerAnswer,
    Put,
)
from atoll.network.policy import Handler, SandboxPolicy, Secret
from atoll.network.rules import Redirect
from atoll.network.slots import NetworkSlots, Slot
from atoll.network_settings import NetworkSettings
from e2e.network import internet as nets
from e2e.network.internet import METADATA, OTHER, PUBLIC, PUBLIC6, RESOLVER, SHARED, Internet

pytestmark = pytest.mark.e2e

UID = 0x6FFF_FFF2
OPENED = ("203.0.113.0/24", "2001:db8:80::/64")
"""The internet of these tests is made of addresses that are reserved for examples."""

GET = b"GET / HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n"


class World:
    """A sandbox's slot behind a gateway, and the internet."""

    def __init__(self, net: Internet, slots: NetworkSlots, slot: Slot, keeper: Keeper) -> None:
        self.net = net
        self.slots = slots
        self.slot = slot
        self.keeper = keeper
        self.authority = new_authority("sandbox")
        self._version = 0

    async def put(self, **fields: Any) -> None:
        """Put a policy in force."""
        self._version += 1
        policy = SandboxPolicy(
            key="default/a",
            host_ref="a",
            addresses=tuple(self.slot.addresses),
            opened=OPENED,
            closed=(f"{nets.UPLINK}/32",),
            version=self._version,
            **fields,
        )
        await self.keeper.put(Put(policy=policy, log="a", authority=self.authority))

    def inside(self, call: Callable[[], Any]) -> Any:
        return netns.call_in(self.slot.netns, call)

    def resolve(self, name: str, kind: str = "A", server: str = RESOLVER) -> list[str]:
        """Ask as root inside with a socket of its own would."""

        def ask() -> list[str]:
            query = dns.message.make_query(name, kind, use_edns=0)
            six = ":" in server
            family = socket.AF_INET6 if six else socket.AF_INET
            with socket.socket(family, socket.SOCK_DGRAM) as asking:
                asking.settimeout(5)
                asking.connect((server, 53))
                asking.send(query.to_wire())
                answer = dns.message.from_wire(asking.recv(4_096))
            return [record.to_text() for rrset in answer.answer for record in rrset]

        found: list[str] = self.inside(ask)
        return found

    def say(self, address: str, port: int, data: bytes, **tls: Any) -> bytes:
        """Connect, send, and return all that comes."""

        def talk() -> bytes:
            got = b""
            with suppress(OSError), socket.create_connection((address, port), 5) as plain:
                plain.settimeout(tls.get("timeout", 10))
                context = tls.get("context")
                wrapped = (
                    context.wrap_socket(plain, server_hostname=tls["name"]) if context else plain
                )
                with wrapped:
                    wrapped.sendall(data)
                    while more := wrapped.recv(65_536):
                        got += more
            return got

        found: bytes = self.inside(talk)
        return found

    async def told(self, protocol: str) -> Decision:
        """Return the last decision about *protocol*, when there is one."""
        async with asyncio.timeout(20):
            while True:
                found = [o for o in log.read(self.keeper.logs, "a") if o.protocol == protocol]
                if found:
                    return found[-1]
                await asyncio.sleep(0.01)

    def trusting(self, *certificates: str) -> ssl.SSLContext:
        return ssl.create_default_context(cadata="".join(certificates))


async def handle(call: Call) -> HandlerAnswer:
    return Answered(status=200, headers=[], body=call.url.encode())


@pytest.fixture
def net(folder: Path) -> Iterator[Internet]:
    with nets.internet(folder) as made:
        yield made


@pytest.fixture
async def world(folder: Path, net: Internet) -> AsyncIterator[World]:
    async with standing(folder, net) as made:
        yield made


@asynccontextmanager
async def standing(folder: Path, net: Internet, **fields: Any) -> AsyncIterator[World]:
    """Have a sandbox and a gateway on the host of *net*; *fields*: settings of the network."""
    settings = NetworkSettings(
        nameservers=(RESOLVER,), prepared=0, private_ranges=OPENED, ipv6="on", **fields
    )
    slots = NetworkSlots(settings, "one", base=folder / "netns")
    await slots.open()
    ports: list[Ports] = []
    trust = (net.authority.path,)
    keeper = Keeper(folder / "egress", (RESOLVER,), handle, ports.append, uid=UID, trust=trust)
    await keeper.open()
    await slots.set_redirect(Redirect(ports[0].connections, ports[0].names, UID))
    slot = await slots.acquire("a")
    await slots.set_mode("a", "gated")
    try:
        yield World(net, slots, slot, keeper)
    finally:
        await keeper.close(stop=True)
        await slots.adopt(())
        await slots.close()


async def test_an_allowed_host_is_reached_by_http_and_https(world: World) -> None:
    await world.put(allowed=("allowed.test",))
    assert world.resolve("allowed.test") == [PUBLIC]
    answer = world.say(PUBLIC, 80, GET % b"allowed.test")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["host"] == "allowed.test"
    context = world.trusting(world.net.authority.path.read_text())
    answer = world.say(PUBLIC, 443, GET % b"allowed.test", context=context, name="allowed.test")
    assert b"200 OK" in answer
    assert {seen.sni for seen in world.net.requests} == {None, "allowed.test"}
    for protocol in ("dns", "http", "tls"):
        told = await world.told(protocol)
        assert (told.verdict, told.host) == ("allowed", "allowed.test")


async def test_it_is_reached_over_ipv6(world: World) -> None:
    await world.put(allowed=("six.test", "both.test"))
    assert world.resolve("six.test", "AAAA") == [PUBLIC6]
    assert b"200 OK" in world.say(PUBLIC6, 80, GET % b"six.test")
    assert (await world.told("http")).address == PUBLIC6
    assert b" 520 " in world.say(PUBLIC6, 80, GET % b"both.test")


async def test_names_are_asked_of_our_resolver_whatever_server_is_asked(world: World) -> None:
    await world.put(allowed=("allowed.test",))
    for server in (RESOLVER, "8.8.8.8", "192.0.2.77", "2001:db8::53"):
        assert world.resolve("allowed.test", server=server) == [PUBLIC]
        assert world.resolve("secret-in-a-name.many.test", server=server) == []
    assert {name for name, _ in world.net.names.questions} == {"allowed.test"}


async def test_a_name_does_not_lead_to_private_addresses(world: World) -> None:
    await world.put(allowed=("*",), intercept=True)
    for name in (
        "rebound.test", "private.test", "metadata.google.internal", "loopback.test", "host.test",
    ):  # fmt: skip
        assert world.resolve(name) == []
        for address in (METADATA, "10.9.9.9", "127.0.0.1", nets.UPLINK, world.slot.gateway):
            answer = world.say(address, 80, GET % name.encode())
            assert answer == b"" or b" 520 " in answer
    assert world.net.connections == []


async def test_a_bare_address_leads_nowhere(world: World) -> None:
    await world.put(allowed=("allowed.test",))
    for address in (PUBLIC, OTHER, METADATA, "10.9.9.9", nets.METADATA6, PUBLIC6):
        for port in (7, 22, 53, 80, 443, 853):
            answer = world.say(address, port, GET % b"allowed.test")
            assert answer == b"" or b" 520 " in answer
    assert world.net.connections == []


async def test_an_address_of_two_names_is_of_one_of_them_only(world: World) -> None:
    await world.put(allowed=("one.shared.test",))
    assert world.resolve("one.shared.test") == [SHARED]
    assert b"200 OK" in world.say(SHARED, 80, GET % b"one.shared.test")
    assert b" 520 " in world.say(SHARED, 80, GET % b"two.shared.test")
    context = world.trusting(world.net.authority.path.read_text())
    sent = GET % b"two.shared.test"
    assert world.say(SHARED, 443, sent, context=context, name="two.shared.test") == b""
    assert [seen.host for seen in world.net.requests] == ["one.shared.test"]


async def test_a_server_that_speaks_first_is_reached(world: World) -> None:
    await world.put(allowed=("allowed.test",))
    world.resolve("allowed.test")
    assert world.say(PUBLIC, 22, b"\0x\n") in {b"220 ready\r\n\0x\n", b"\0x\n220 ready\r\n"}


async def test_the_inside_of_https_is_seen_where_it_is_opened(world: World) -> None:
    await world.put(allowed=("allowed.test",), intercept=True)
    world.resolve("allowed.test")
    context = world.trusting(world.authority.certificate)
    answer = world.say(PUBLIC, 443, GET % b"allowed.test", context=context, name="allowed.test")
    assert b"200 OK" in answer
    told = await world.told("https")
    assert (told.verdict, told.path, told.status) == ("allowed", "/", 200)


async def test_a_secret_arrives_outside_and_is_nowhere_inside(world: World) -> None:
    secret = Secret("KEY", "atoll_secret_1", ("allowed.test",), "the-value")
    await world.put(secrets=(secret,))
    for name in ("allowed.test", "other.test"):
        world.resolve(name)
    sent = GET.replace(b"\r\nConn", b"\r\nX-Key: atoll_secret_1\r\nConn")
    context = world.trusting(world.authority.certificate, world.net.authority.path.read_text())
    world.say(PUBLIC, 443, sent % b"allowed.test", context=context, name="allowed.test")
    assert b" 520 " in world.say(OTHER, 80, sent % b"other.test")
    assert [seen.headers["x-key"] for seen in world.net.requests] == ["the-value"]
    for file in (world.keeper.logs / "a.jsonl", world.keeper.logs.parent / "gateway.log"):
        assert b"the-value" not in file.read_bytes()


async def test_a_handler_answers_in_place_of_the_internet(world: World) -> None:
    await world.put(internet=False, class_by_host={"api.test": Handler("outbound_by_host")})
    (address,) = world.resolve("api.test")
    answer = await asyncio.to_thread(world.say, address, 80, GET % b"api.test")
    assert answer.endswith(b"http://api.test/")
    assert world.net.connections == []
    assert world.net.names.questions == []


async def test_while_the_gateway_is_gone_nothing_goes_out(world: World) -> None:
    await world.put(allowed=("allowed.test",))
    world.resolve("allowed.test")
    pid = (await world.keeper.status()).pid
    subprocess.run(["kill", "-9", str(pid)], check=True)
    assert world.say(OTHER, 80, GET % b"other.test", timeout=0.5) == b""
    async with asyncio.timeout(30):
        while (await _pid(world)) in {pid, 0}:
            await asyncio.sleep(0.05)
    world.resolve("allowed.test")
    assert b"200 OK" in world.say(PUBLIC, 80, GET % b"allowed.test")
    assert [seen.host for seen in world.net.requests] == ["allowed.test"]


async def _pid(world: World) -> int:
    with suppress(Exception):
        return (await world.keeper.status()).pid
    return 0


async def beside(world: World) -> World:
    """Return another sandbox, which may reach allowed.test."""
    near = await world.slots.acquire("b")
    await world.slots.set_mode("b", "gated")
    policy = SandboxPolicy(
        key="default/b", host_ref="b", addresses=tuple(near.addresses), opened=OPENED,
        allowed=("allowed.test",),
    )  # fmt: skip
    await world.keeper.put(Put(policy=policy, log="b"))
    return World(world.net, world.slots, near, world.keeper)


async def test_two_thousand_connections_of_one_leave_room_for_another(world: World) -> None:
    await world.put(allowed=("allowed.test",), max_connections=100)
    neighbour = await beside(world)

    def flood() -> list[socket.socket]:
        opened = []
        for _ in range(2_000):
            with suppress(OSError):
                opened.append(socket.create_connection((PUBLIC, 80), 1))
        return opened

    begun = time.monotonic()
    opened = world.inside(flood)
    try:
        assert neighbour.resolve("allowed.test") == [PUBLIC]
        assert b"200 OK" in neighbour.say(PUBLIC, 80, GET % b"allowed.test")
        assert (await world.keeper.status()).sandboxes["a"].connections <= 100
        assert time.monotonic() - begun < 30
    finally:
        for one in opened:
            one.close()


FLOOD = """
import socket, sys
print("begun", flush=True)
sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
question = bytes.fromhex(sys.argv[2])
while True:
    try:
        sending.sendto(question, (sys.argv[1], 53))
    except OSError:
        pass
"""


@pytest.mark.parametrize("asked", ["allowed.test", "other.test", ""])
async def test_a_flood_of_questions_of_one_loses_none_of_another(world: World, asked: str) -> None:
    """One socket takes the questions of all sandboxes: what it has no room for is lost."""
    await world.put(allowed=("allowed.test",))
    neighbour = await beside(world)
    question = dns.message.make_query(asked, "A").to_wire() if asked else bytes(1_400)
    argv = ["nsenter", f"--net={world.slot.netns}", sys.executable, "-I", "-c", FLOOD, RESOLVER]
    with subprocess.Popen([*argv, question.hex()], stdout=subprocess.PIPE) as flood:
        try:
            assert flood.stdout
            assert flood.stdout.readline()
            lost = 0
            for _ in range(25):
                try:
                    assert neighbour.resolve("allowed.test") == [PUBLIC]
                except TimeoutError:  # as on a host that is busy
                    lost += 1
            assert lost <= 2
        finally:
            flood.kill()
