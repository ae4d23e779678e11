"""Processes over HTTP, in every form, with an agent of the test that writes a real log."""

import json
from typing import Any

import httpx2
import pytest

from atoll.server import buffered
from atoll.server.processes import LogSseForm
from atoll.wire import frames
from atoll.wire.frames import Frame, Kind
from integration.engine.scripted import Peer, World
from integration.server.conftest import BOX

PROCESSES = BOX + "/processes"


@pytest.fixture
def log(world: World) -> list[bytes]:
    """Frames that the next processes write to their logs."""
    content: list[bytes] = []

    async def run(peer: Peer, header: dict[str, Any]) -> None:
        path = next(world.state_dir.glob(f"logs/*/{header['id']}"))
        path.write_bytes(b"".join(content))
        await peer.send(Kind.STARTED, {"pid": 7})
        await peer.send(Kind.EXITED, {"exit_code": 3, "offset": 3})

    world.runtime.scripts["exec"] = run
    content += [
        frames.encode_output(Kind.STDOUT, 1, 0, b"a\n"),
        frames.encode_output(Kind.STDERR, 2, 2, b"\xff"),
        frames.encode_json(Kind.EXITED, {"exit_code": 3, "offset": 3}),
    ]
    return content


async def started(client: httpx2.AsyncClient) -> str:
    answer = await client.post(PROCESSES, json={"command": "x", "processId": "p"})
    assert answer.status_code == 200, answer.text
    found = (await client.get(f"{PROCESSES}/p", params={"wait": 5000})).json()
    assert (found["status"], found["exitCode"]) == ("failed", 3)
    return str(found["handle"])


async def test_the_whole_output_as_json(client: httpx2.AsyncClient, log: list[bytes]) -> None:
    await started(client)
    body = (await client.get(f"{PROCESSES}/p/logs")).json()
    assert body == {
        "processId": "p", "stdout": "a\n", "stderr": "\ufffd", "stderrBase64": "/w==",
        "truncated": False,
    }  # fmt: skip


async def test_more_than_an_answer_holds_is_cut_and_says_so(
    client: httpx2.AsyncClient, log: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffered, "OUTPUT_LIMIT", 1)
    await started(client)
    body = (await client.get(f"{PROCESSES}/p/logs")).json()
    assert (body["stdout"], body["stderrBase64"], body["truncated"]) == ("a", "/w==", True)


async def test_a_stream_in_the_form_that_is_asked_for(
    client: httpx2.AsyncClient, log: list[bytes]
) -> None:
    await started(client)
    stream = f"{PROCESSES}/p/logs/stream?fromOffset=1"
    answer = await client.get(stream, headers={"accept": frames.CONTENT_TYPE})
    found = list(frames.Decoder().feed(answer.content))
    assert [f.kind for f in found] == [Kind.STARTED, Kind.STDOUT, Kind.STDERR, Kind.EXITED]
    assert frames.decode_output(found[1].payload).data == b"\n"
    lines = (await client.get(stream, headers={"accept": "application/x-ndjson"})).text.splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["started", "stdout", "stderr", "exited"]
    answer = await client.get(stream)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert '"type": "exit"' in answer.text


async def test_a_handle_of_another_start_is_stale(
    client: httpx2.AsyncClient, log: list[bytes]
) -> None:
    handle = await started(client)
    for method, path in (
        ("GET", "p"), ("DELETE", "p"), ("GET", "p/logs"), ("GET", "p/logs/stream"),
    ):  # fmt: skip
        url = f"{PROCESSES}/{path}"
        right = await client.request(method, url, params={"handle": handle})
        wrong = await client.request(method, url, params={"handle": "other"})
        assert (right.status_code, wrong.status_code) == (200, 409), path
        assert wrong.json()["code"] == "STALE_HANDLE"


@pytest.mark.parametrize("id", ["a%20b", "x" * 129, "%00"])
async def test_an_id_that_cannot_be_one_is_refused(client: httpx2.AsyncClient, id: str) -> None:
    answer = await client.get(f"{PROCESSES}/{id}")
    assert answer.json()["code"] == "VALIDATION_FAILED"


async def test_all_of_them(client: httpx2.AsyncClient, log: list[bytes]) -> None:
    await started(client)
    assert [p["id"] for p in (await client.get(PROCESSES)).json()["processes"]] == ["p"]
    assert (await client.delete(PROCESSES)).json() == {"count": 0}
    assert (await client.post(f"{PROCESSES}/cleanup")).json() == {"count": 1}
    assert (await client.get(f"{PROCESSES}/p")).json()["code"] == "PROCESS_NOT_FOUND"


async def test_a_port_of_a_process_that_ended(client: httpx2.AsyncClient, log: list[bytes]) -> None:
    await started(client)
    answer = await client.post(f"{PROCESSES}/p/port", json={"port": 80, "wait": 60_000})
    body = answer.json()
    assert (body["code"], body["context"]["exit_code"]) == ("PROCESS_EXITED_BEFORE_READY", 3)


def test_a_stream_that_ends_before_the_process_shows_what_it_holds_of_a_character() -> None:
    form = LogSseForm("p", "r")
    started = form.frame(Frame(Kind.STARTED, b"{}"))
    assert started.startswith(b":"), "a comment: the head of the answer goes out at once"
    form.frame(Frame(Kind.STDOUT, frames.encode_output(Kind.STDOUT, 0, 0, b"\xc3")[5:]))
    ending = form.frame(Frame(Kind.END, b"{}"))
    assert json.loads(ending[6:])["data"] == "\ufffd"
