"""What an agent that was taken over answers is its fault, and told so: never one of the engine."""

from typing import Any

import httpx2
import pytest

from atoll.wire import frames
from atoll.wire.frames import Kind
from integration.engine.scripted import Peer, World
from integration.server.conftest import BOX

META = {"path": "/x", "size": 1, "mimeType": "text/plain", "isBinary": False, "encoding": "utf-8",
        "etag": "e"}  # fmt: skip


def replying(body: bytes) -> Any:
    async def reply(peer: Peer, _: dict[str, Any]) -> None:
        await peer.send(Kind.REPLY, body)

    return reply


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b"[1]", b"\xff", b'{"files":5}', b"{}"], ids=range(5)
)
async def test_an_answer_of_another_type(
    client: httpx2.AsyncClient, world: World, body: bytes
) -> None:
    world.runtime.scripts["fs.list_files"] = replying(body)
    answer = await client.get(BOX + "/files/list", params={"path": "/"})
    assert (answer.status_code, answer.json()["code"]) == (409, "OPERATION_INTERRUPTED")
    assert answer.json()["context"]["reason"] == "agent"


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream", "application/x-ndjson",
                                    frames.CONTENT_TYPE])  # fmt: skip
@pytest.mark.parametrize("kind", [Kind.REPLY, Kind.DATA, Kind.END, Kind.EVENT])
async def test_a_command_that_ends_with_what_ends_no_command(
    client: httpx2.AsyncClient, world: World, accept: str, kind: Kind
) -> None:
    async def answered(peer: Peer, _: dict[str, Any]) -> None:
        await peer.send(Kind.STARTED, {"pid": 1})
        await peer.send(kind, {"exit_code": 0})

    world.runtime.scripts["exec"] = answered
    command = {"command": ["true"]}
    answer = await client.post(BOX + "/exec", json=command, headers={"accept": accept})
    assert "OPERATION_INTERRUPTED" in answer.text
    assert "INTERNAL_ERROR" not in answer.text


async def test_a_file_that_is_longer_than_was_said_is_cut(
    client: httpx2.AsyncClient, world: World
) -> None:
    async def longer(peer: Peer, _: dict[str, Any]) -> None:
        await peer.send(Kind.REPLY, META)
        await peer.send(Kind.DATA, b"abc")
        await peer.send(Kind.END, {})

    world.runtime.scripts["fs.read_file"] = longer
    with pytest.raises(httpx2.RemoteProtocolError):
        await client.get(BOX + "/files", params={"path": "/x"})
