import asyncio
import socket

import pytest

from atoll.network.gateway.protocol import Put
from atoll.network.gateway.service import original_destination
from integration.network.gateway.harness import NEIGHBOUR, Harness, policy


async def test_a_stranger_gets_no_connection(gateway: Harness) -> None:
    gateway.put(policy())
    reader, writer = await gateway.connect("127.0.0.1", 80, NEIGHBOUR)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()


async def test_a_sandbox_that_was_removed_is_a_stranger(gateway: Harness) -> None:
    gateway.put(policy())
    reader, writer = await gateway.connect("127.0.0.1", 80)
    writer.write(b"GET")
    gateway.service.remove("box")
    with pytest.raises((ConnectionError, EOFError)):
        await asyncio.wait_for(reader.readexactly(1), 10)
    writer.close()
    assert gateway.service.versions() == {}


async def test_an_older_policy_changes_nothing(gateway: Harness) -> None:
    gateway.put(policy(version=2))
    gateway.put(policy(version=1))
    assert gateway.service.versions() == {"box": 2}


async def test_one_sandbox_has_a_number_of_connections(gateway: Harness) -> None:
    gateway.put(policy(max_connections=5, denied=("x.test",)))  # so they wait to be decided
    gateway.put(policy(host_ref="near", addresses=(NEIGHBOUR,), allowed=("x.test",)))
    opened = [await gateway.connect("127.0.0.1", 80) for _ in range(50)]
    async with asyncio.timeout(10):
        while len([one for one in gateway.log() if one.rule == "too many connections"]) < 45:
            await asyncio.sleep(0.01)
    assert b" 520 " in await gateway.exchange(
        "127.0.0.1", 80, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", NEIGHBOUR
    )
    for _, writer in opened:
        writer.close()


async def test_names_are_asked_for_by_tcp_too_however_it_is_cut(gateway: Harness) -> None:
    import dns.message

    gateway.put(policy(opened=()))
    gateway.name("a.test", "93.184.216.34")
    query = dns.message.make_query("a.test", "A").to_wire()
    with socket.socket() as asking:
        asking.bind(("127.0.1.1", 0))
        asking.connect(("127.0.0.1", gateway.dns_port))
        reader, writer = await asyncio.open_connection(sock=asking.dup())
        for byte in len(query).to_bytes(2, "big") + query:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        length = int.from_bytes(await reader.readexactly(2), "big")
        assert dns.message.from_wire(await reader.readexactly(length)).answer
        writer.write(b"\xff\xff")
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()


def test_a_connection_that_nobody_redirected_has_no_destination() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = socket.create_connection(listener.getsockname())
        taken, _ = listener.accept()
        with made, taken, pytest.raises(OSError):
            original_destination(taken)


async def test_a_log_has_a_proper_name(gateway: Harness) -> None:
    with pytest.raises(ValueError, match="no name"):
        gateway.service.put(Put(policy=policy(), log="../x"))
