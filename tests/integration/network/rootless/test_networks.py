import asyncio
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from atoll.errors import ContainerUnavailableError
from atoll.host import lasting
from atoll.network.gateway.service import original_destination
from atoll.network.rootless import networks, rules
from atoll.network.rootless.networks import Slot, UserNetworks
from integration.network.rootless.conftest import SETTINGS, holder, inside

PUBLIC, PRIVATE = "203.0.113.9", "192.168.7.7"

CONNECT = """
try: socket.create_connection(("{address}", {port}), timeout=5).close(); print("connected")
except OSError as error: print(type(error).__name__)
"""
SEND = """
made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try: made.sendto(b"x", ("{address}", {port})); print("sent")
except OSError as error: print(type(error).__name__)
"""


def connect(slot: Slot, address: str, port: int = 80) -> str:
    return inside(slot, CONNECT.format(address=address, port=port))


def send(slot: Slot, address: str, port: int) -> str:
    return inside(slot, SEND.format(address=address, port=port))


async def taken(made: UserNetworks, host_ref: str) -> tuple[socket.socket, ...]:
    """Return copies of the listeners, as the gateway has them."""
    found = tuple(socket.socket(fileno=fd) for fd in await made.listeners(host_ref))
    for one in found:
        one.settimeout(5)
    return found


async def test_a_new_network_is_closed_and_has_loopback(made: UserNetworks) -> None:
    slot = await made.acquire("a")
    assert connect(slot, PUBLIC) == "ConnectionRefusedError"
    assert connect(slot, PRIVATE) == "ConnectionRefusedError"
    for port in (53, 443):
        assert send(slot, PUBLIC, port) == "PermissionError"
    served = (
        "s = socket.create_server(('{0}', 80)); socket.create_connection(('{0}', 80)); print(1)"
    )
    for address in ("127.0.0.1", slot.address):
        assert inside(slot, served.format(address)) == "1"


async def test_connections_and_questions_end_at_the_listeners(made: UserNetworks) -> None:
    slot = await made.acquire("a")
    await made.set_mode("a", "direct")
    connections, _, names = await taken(made, "a")
    with connections, _, names:
        assert connect(slot, PUBLIC, 8_443) == "connected"
        arrived, peer = connections.accept()
        with arrived:
            assert peer[0] == slot.address
            assert original_destination(arrived) == (PUBLIC, 8_443)
        assert send(slot, "8.8.8.8", 53) == "sent"
        assert names.recvfrom(9)[0] == b"x"


async def test_direct_refuses_what_is_not_public_and_all_but_tcp_and_names(
    made: UserNetworks,
) -> None:
    slot = await made.acquire("a")
    await made.set_mode("a", "direct")
    for address in (PRIVATE, "169.254.169.254", "100.100.100.200", "10.213.0.6", "224.0.0.1"):
        assert connect(slot, address) in {"ConnectionRefusedError", "OSError"}, address
    for address, port in ((PUBLIC, 443), ("8.8.8.8", 853), (PRIVATE, 5353)):
        assert send(slot, address, port) == "PermissionError", (address, port)
    six = CONNECT.format(address="2001:db8::1", port=80)
    assert inside(slot, six) == "OSError"


async def test_gated_turns_private_addresses_to_the_gateway_too(made: UserNetworks) -> None:
    """It is asked for names that only a handler knows, whose addresses are invented."""
    slot = await made.acquire("a")
    await made.set_mode("a", "gated")
    assert connect(slot, "198.18.0.7") == "connected"


async def test_closing_cuts_open_connections(made: UserNetworks) -> None:
    slot = await made.acquire("a")
    await made.set_mode("a", "direct")
    connections, *others = await taken(made, "a")
    code = (
        f"made = socket.create_connection(('{PUBLIC}', 80), timeout=20)\n"
        "try:\n while made.send(b'x'): time.sleep(0.01)\n"
        "except ConnectionError as error: print('cut')"
    )
    asking = asyncio.create_task(asyncio.to_thread(inside, slot, code))
    with connections, (await asyncio.to_thread(connections.accept))[0] as arrived:
        arrived.sendall(b"x")
        await made.set_mode("a", "closed")
        with suppress(ConnectionResetError):
            while arrived.send(b"y"):
                await asyncio.sleep(0.01)
    assert await asking == "cut"
    for one in others:
        one.close()


async def test_networks_are_told_apart_and_go_when_released(made: UserNetworks) -> None:
    first, second = await made.acquire("a"), await made.acquire("b")
    assert first.netns != second.netns
    assert await made.acquire("a") == first
    assert await made.list() == ["a", "b"]
    await made.adopt(["b"])
    assert await made.list() == ["b"]
    assert first.netns
    assert not first.netns.exists()


async def test_another_engine_finds_what_was_given_and_drops_the_rest(
    made: UserNetworks, tmp_path: Path
) -> None:
    slot = await made.acquire("a")
    await made.set_mode("a", "direct")
    await made.close()  # as an engine that is stopped while a sandbox runs
    later = UserNetworks(SETTINGS, tmp_path / "n")
    await later.open()
    assert await later.list() == ["a"]
    assert await later.acquire("a") == slot
    assert connect(slot, PUBLIC) == "connected", "what was in force stays so"
    await later.set_mode("a", "closed")
    assert connect(slot, PUBLIC) == "ConnectionRefusedError"
    await later.close()


async def test_another_holder_is_started_where_one_ended_and_what_it_held_is_told_lost(
    made: UserNetworks, tmp_path: Path
) -> None:
    await made.acquire("a")
    held = holder(tmp_path / "n")
    os.kill(held.pid, signal.SIGKILL)
    await lasting.ended(held)
    slot = await made.acquire("b")
    await made.set_mode("b", "direct")
    assert connect(slot, PUBLIC) == "connected"
    for call in (made.listeners("a"), made.set_mode("a", "direct")):
        with pytest.raises(ContainerUnavailableError, match="stop the sandbox") as raised:
            await call
        assert raised.value.context["reason"] == "network"
    await made.release("a")
    assert await made.list() == ["b"]


async def test_the_next_engine_starts_another_holder_too(
    made: UserNetworks, tmp_path: Path
) -> None:
    held = holder(tmp_path / "n")
    os.kill(held.pid, signal.SIGKILL)
    await lasting.ended(held)
    later = UserNetworks(SETTINGS, tmp_path / "n")
    await later.open()
    assert (await later.acquire("b")).netns
    with pytest.raises(ContainerUnavailableError, match="stop the sandbox"):
        await later.set_mode("a", "direct")
    await later.release("b")
    await later.close()


async def test_a_host_without_nft_gives_loopback_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(networks, "missing_tools", lambda: ["nftables"])
    found = UserNetworks(SETTINGS, tmp_path / "n")
    await found.open()
    assert not found.way_out
    assert await found.acquire("a") == Slot()
    await found.set_mode("a", "direct")
    await found.release("a")
    await found.close()
    assert not (tmp_path / "n").exists()


async def test_a_filter_that_cannot_be_loaded_gives_loopback_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels without nftables, or that keep them from users."""
    monkeypatch.setattr(rules, "ruleset", lambda _: "no such command\n")
    found = UserNetworks(SETTINGS, tmp_path / "n")
    await found.open()
    assert not found.way_out
    assert not lasting.alive(holder(tmp_path / "n"))
