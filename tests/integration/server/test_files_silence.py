"""A file operation that gets nowhere is given up with a typed error."""

import asyncio
from typing import Any

import httpx2
import pytest

from atoll.server import files
from atoll.wire.frames import Kind
from integration.engine.scripted import Peer, World
from integration.server.conftest import BOX


async def nothing(peer: Peer, _header: dict[str, Any]) -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("op", "method", "path", "content"),
    [
        ("stat", "GET", "/files/stat?path=stuck/f", None),
        ("read_file", "GET", "/files?path=stuck/f", None),
        ("write_file", "PUT", "/files?path=stuck/f", b"x"),
        ("write_file", "PUT", "/files?path=stuck/f", bytes(20_000_000)),
        ("download", "GET", "/files/archive?path=stuck/f", None),
    ],
)
async def test_silence_is_a_timeout_with_the_path(
    client: httpx2.AsyncClient,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    op: str,
    method: str,
    path: str,
    content: bytes | None,
) -> None:
    monkeypatch.setattr(files, "SILENCE", 0.2)
    world.runtime.scripts[f"fs.{op}"] = nothing
    answer = await client.request(method, BOX + path, content=content)
    told = answer.json()
    assert (answer.status_code, told["code"]) == (408, "TIMEOUT")
    assert told["context"]["path"] == "stuck/f"


async def test_an_operation_that_shows_life_takes_its_time(
    client: httpx2.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(peer: Peer, _header: dict[str, Any]) -> None:
        for _ in range(10):
            await peer.send(Kind.HEARTBEAT)
            await asyncio.sleep(0.1)
        await peer.send(Kind.REPLY, {"success": True})

    monkeypatch.setattr(files, "SILENCE", 0.8)
    world.runtime.scripts["fs.delete_file"] = slow
    answer = await client.request("DELETE", f"{BOX}/files?path=f")
    assert answer.status_code == 200, answer.text
