import asyncio
from contextlib import suppress
from typing import Any

import httpx2
import pytest

from integration.engine.commands.test_git_checkout import git
from integration.engine.scripted import Peer, World
from integration.server.conftest import BOX

CHECKOUT = BOX + "/git/checkout"


async def test_the_key_of_the_request_is_the_id_of_the_clone(
    client: httpx2.AsyncClient, world: World
) -> None:
    seen: list[dict[str, Any]] = []
    world.runtime.scripts["exec"] = git(seen)
    body = {"url": "https://h/r.git"}
    answer = await client.post(CHECKOUT, json=body, headers={"idempotency-key": "key-1"})
    assert (answer.status_code, answer.json()["path"]) == (200, "/w/r")
    await client.post(CHECKOUT, json=body)
    assert seen[0]["id"] == "key-1"
    assert len({header["id"] for header in seen}) == 4


async def test_refusals_are_ordinary_answers(client: httpx2.AsyncClient, world: World) -> None:
    world.runtime.scripts["exec"] = git([], b"fatal: repository 'x' not found", exit_code=128)
    answer = await client.post(CHECKOUT, json={"url": "https://h/r.git"})
    assert (answer.status_code, answer.json()["code"]) == (404, "GIT_REPOSITORY_NOT_FOUND")
    answer = await client.post(CHECKOUT, json={"url": "/etc"})
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_GIT_URL")


async def test_a_caller_who_leaves_ends_the_clone(client: httpx2.AsyncClient, world: World) -> None:
    ended = asyncio.Event()

    async def hang(peer: Peer, header: dict[str, Any]) -> None:
        with suppress(ConnectionResetError):
            await peer.next()
        ended.set()

    world.runtime.scripts["exec"] = hang
    with pytest.raises(httpx2.ReadTimeout):
        await client.post(CHECKOUT, json={"url": "https://h/r.git"}, timeout=0.3)
    await asyncio.wait_for(ended.wait(), 5)
