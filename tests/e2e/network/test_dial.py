import asyncio
import os
import socket
from pathlib import Path

import pytest

from atoll.network import netns
from atoll.network.dial import connect
from atoll.network.slots import NetworkSlots

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_servers_on_the_sandboxes_own_loopback_are_reached(
    slots: NetworkSlots, address: str
) -> None:
    slot = await slots.acquire("a")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with (
        netns.call_in(slot.netns, lambda: socket.create_server((address, 80), family=family)) as s,
        await connect(slot.netns, address, 80) as opened,
    ):
        accepted, _ = s.accept()
        accepted.sendall(b"hello")
        accepted.close()
        assert await asyncio.get_running_loop().sock_recv(opened, 10) == b"hello"


async def test_nobody_listening_is_a_refused_connection(slots: NetworkSlots) -> None:
    slot = await slots.acquire("a")
    with pytest.raises(ConnectionRefusedError):
        await connect(slot.netns, "127.0.0.1", 80)


async def test_a_namespace_that_is_gone_is_said_to_be(slots: NetworkSlots) -> None:
    slot = await slots.acquire("a")
    await slots.release("a")
    with pytest.raises(FileNotFoundError):
        await connect(slot.netns, "127.0.0.1", 80)


async def test_a_process_names_its_namespace_too(internet: Path) -> None:
    with socket.create_server(("127.0.0.1", 80)):
        (await connect(Path("/proc/thread-self/ns/net"), "127.0.0.1", 80)).close()
    with pytest.raises(ConnectionRefusedError):
        await connect(Path(f"/proc/{os.getpid()}/ns/net"), "127.0.0.1", 80)
