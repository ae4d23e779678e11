import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import msgspec
import pytest

from atoll.engine.commands import operations
from atoll.engine.engine import Engine
from atoll.server.main import Served
from atoll.wire import frames
from atoll.wire.frames import Frame, Kind
from integration.engine.scripted import Peer, World
from integration.server.conftest import BOX

FRAMES = {"accept": frames.CONTENT_TYPE}
EXEC = BOX + "/exec"


def decoded(data: bytes) -> list[Frame]:
    decoder = frames.Decoder()
    found = list(decoder.feed(data))
    assert not decoder.pending
    return found


async def test_json_by_default(client: httpx2.AsyncClient) -> None:
    answer = await client.post(EXEC, json={"command": ["a", "b"]})
    body = answer.json()
    assert (body["stdout"], body["exitCode"], body["success"]) == ("a b\n", 0, True)


async def test_frames_are_those_of_the_agent(client: httpx2.AsyncClient) -> None:
    answer = await client.post(EXEC, json={"command": ["a"]}, headers=FRAMES)
    assert answer.headers["content-type"] == frames.CONTENT_TYPE
    kinds = [frame.kind for frame in decoded(answer.content)]
    assert kinds == [Kind.STARTED, Kind.STDOUT, Kind.EXITED]


@pytest.mark.parametrize(
    ("accept", "last"),
    [("text/event-stream", b'data: {"timestamp"'), ("application/x-ndjson", b'{"type": "exited"')],
)
async def test_other_forms_by_accept(client: httpx2.AsyncClient, accept: str, last: bytes) -> None:
    answer = await client.post(EXEC, json={"command": ["a"]}, headers={"accept": accept})
    assert answer.headers["content-type"].startswith(accept)
    assert answer.content.strip().split(b"\n")[-1].startswith(last)


async def cat(peer: Peer, header: dict[str, Any]) -> None:
    data = b""
    while header["stdin"] and (frame := await peer.next()).kind == Kind.STDIN:
        data += frame.payload
    await peer.send(Kind.STARTED, {"pid": 1})
    for start in range(0, len(data), frames.CHUNK):
        part = data[start : start + frames.CHUNK]
        await peer.raw(frames.encode_output(Kind.STDOUT, 0, start, part))
    await peer.send(Kind.EXITED, {"exit_code": 0})


async def framed(command: list[str], *chunks: bytes) -> AsyncIterator[bytes]:
    yield frames.encode(Kind.HEADER, json.dumps({"command": command, "stdin": True}).encode())
    for chunk in chunks:
        yield frames.encode(Kind.STDIN, chunk)
    yield frames.encode(Kind.STDIN_CLOSE)


async def test_stdin_of_any_size_is_taken_before_the_command_starts(
    client: httpx2.AsyncClient, world: World
) -> None:
    world.runtime.scripts["exec"] = cat
    chunks = [bytes([n]) * 500_000 for n in range(8)]
    headers = {"content-type": frames.CONTENT_TYPE}
    answer = await client.post(EXEC, content=framed(["cat"], *chunks), headers=headers | FRAMES)
    out = [f for f in decoded(answer.content) if f.kind == Kind.STDOUT]
    assert b"".join(frames.decode_output(f.payload).data for f in out) == b"".join(chunks)
    assert list(world.state_dir.glob("tmp*")) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"garbage",
        frames.encode(Kind.STDIN, b"x"),
        frames.encode(Kind.HEADER, b'{"command": "x"}') + b"\x07",
        frames.encode(Kind.HEADER, b"{}") * 2,
        b"\x01\xff\xff\xff\xff",
    ],
)
async def test_a_malformed_body_of_frames_is_refused(
    client: httpx2.AsyncClient, world: World, body: bytes
) -> None:
    headers = {"content-type": frames.CONTENT_TYPE}
    answer = await client.post(EXEC, content=body, headers=headers)
    assert answer.json()["code"] == "VALIDATION_FAILED"
    assert world.runtime.starts == 0


async def test_an_error_before_the_command_starts_is_an_http_error(
    client: httpx2.AsyncClient, world: World
) -> None:
    async def refuse(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.ERROR, {"code": "COMMAND_NOT_FOUND", "message": "no x"})

    world.runtime.scripts["exec"] = refuse
    for accept in (frames.CONTENT_TYPE, "text/event-stream", "application/json"):
        answer = await client.post(EXEC, json={"command": ["x"]}, headers={"accept": accept})
        assert (answer.status_code, answer.json()["code"]) == (404, "COMMAND_NOT_FOUND")


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (frames.CONTENT_TYPE, b"OPERATION_INTERRUPTED"),
        ("text/event-stream", b'"type": "error"'),
        ("application/x-ndjson", b'"type": "failed"'),
    ],
)
async def test_an_agent_that_breaks_off_is_an_error_in_the_stream(
    client: httpx2.AsyncClient, world: World, accept: str, expected: bytes
) -> None:
    async def break_off(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.STARTED, {"pid": 1})
        await peer.raw(b"\x05\xff\xff\xff\xff")

    world.runtime.scripts["exec"] = break_off
    answer = await client.post(EXEC, json={"command": ["x"]}, headers={"accept": accept})
    assert answer.status_code == 200
    assert expected in answer.content
    assert (await client.get("/health")).status_code == 200


async def test_a_timeout_is_408_with_the_output(client: httpx2.AsyncClient, world: World) -> None:
    async def slow(peer: Peer, header: dict[str, Any]) -> None:
        await peer.raw(frames.encode_output(Kind.STDOUT, 0, 0, b"part"))
        await peer.send(Kind.EXITED, {"exit_code": 143, "timed_out": True})

    world.runtime.scripts["exec"] = slow
    body = (await client.post(EXEC, json={"command": ["x"]})).json()
    assert (body["code"], body["context"]["result"]["stdout"]) == ("TIMEOUT", "part")


@pytest.fixture
def hanging(world: World) -> list[str]:
    """Commands that hang; what becomes of them is told."""
    told: list[str] = []

    async def hang(peer: Peer, header: dict[str, Any]) -> None:
        told.append(f"{header['op']} {header['cancel_on_drop'] if 'command' in header else ''}")
        await peer.send(Kind.STARTED, {"pid": 1})
        try:
            await peer.next()
        except OSError:
            told.append("dropped")

    async def control(peer: Peer, header: dict[str, Any]) -> None:
        while (frame := await peer.next()).kind != Kind.END:
            told.append(Kind(frame.kind).name + frame.payload.decode())
        await peer.send(Kind.REPLY, {})

    world.runtime.scripts |= {"exec": hang, "attach": hang, "control": control}
    return told


async def until(told: list[str], what: str) -> None:
    async with asyncio.timeout(3):
        while what not in told:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("accept", [frames.CONTENT_TYPE, "application/json"])
async def test_a_caller_without_a_key_who_hangs_up_drops_the_command_at_once(
    client: httpx2.AsyncClient, hanging: list[str], accept: str
) -> None:
    with pytest.raises(httpx2.ReadTimeout):
        await client.post(
            EXEC, json={"command": ["x"]}, headers={"accept": accept}, timeout=0.3
        ) if accept == "application/json" else await _read_all(client, accept)
    await until(hanging, "dropped")
    assert "exec True" in hanging
    assert "CANCEL" not in hanging


async def _read_all(client: httpx2.AsyncClient, accept: str) -> None:
    await client.post(EXEC, json={"command": ["x"]}, headers={"accept": accept}, timeout=0.3)


async def test_a_caller_with_a_key_may_come_back_within_the_grace(
    client: httpx2.AsyncClient, hanging: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "ATTACH_GRACE", 0.3)
    headers = FRAMES | {"idempotency-key": "k1"}
    with pytest.raises(httpx2.ReadTimeout):
        await client.post(EXEC, json={"command": ["x"]}, headers=headers, timeout=0.2)
    with pytest.raises(httpx2.ReadTimeout):
        await client.get(f"{BOX}/operations/k1?fromOffset=3", headers=FRAMES, timeout=0.5)
    assert "CANCEL" not in hanging
    await until(hanging, "CANCEL")


async def test_a_running_command_is_controlled_by_its_key(
    client: httpx2.AsyncClient, hanging: list[str]
) -> None:
    headers = FRAMES | {"idempotency-key": "k1"}
    async with client.stream("POST", EXEC, json={"command": ["x"]}, headers=headers):
        operation = f"{BOX}/operations/k1"
        signal = {"signal": "SIGINT", "tree": True}
        assert (await client.post(operation + "/signal", json=signal)).status_code == 200
        assert (await client.post(operation + "/signal", json={"signal": "term"})).is_success
        for size in ({"cols": 0, "rows": 2}, {"cols": 1, "rows": 1 << 16}, {"cols": -1, "rows": 1}):
            assert (await client.post(operation + "/resize", json=size)).status_code == 400
        for none in ("SIGNOPE", "", "9"):
            refused = (await client.post(operation + "/signal", json={"signal": none})).json()
            assert refused["context"] == {"field": "signal"}, refused
        assert (await client.post(operation + "/resize", json={"cols": 1, "rows": 2})).is_success
        assert (await client.post(operation + "/stdin?close=true", content=b"hi")).is_success
        assert (await client.delete(operation)).is_success
    assert hanging[1:7] == [
        'SIGNAL{"signal":"SIGINT","tree":true}',
        'SIGNAL{"signal":"SIGTERM","tree":false}',
        'RESIZE{"cols":1,"rows":2}',
        "STDINhi",
        "STDIN_CLOSE",
        "CANCEL",
    ]


async def test_an_endless_stream_waits_for_a_caller_who_does_not_read(
    client: httpx2.AsyncClient, world: World
) -> None:
    sent = 0

    async def endless(peer: Peer, header: dict[str, Any]) -> None:
        nonlocal sent
        chunk = frames.encode_output(Kind.STDOUT, 0, 0, b"x" * frames.CHUNK)
        while True:
            await peer.raw(chunk)
            sent += len(chunk)

    world.runtime.scripts["exec"] = endless
    async with client.stream("POST", EXEC, json={"command": ["x"]}, headers=FRAMES) as answer:
        await anext(answer.aiter_raw())
        await asyncio.sleep(0.3)
        held = sent
        await asyncio.sleep(0.2)
        assert sent == held < 8 << 20


async def test_a_bad_key_is_refused(client: httpx2.AsyncClient) -> None:
    headers = {"idempotency-key": "a b"}
    answer = await client.post(EXEC, json={"command": ["x"]}, headers=headers)
    assert answer.json()["code"] == "VALIDATION_FAILED"


async def ring(peer: Peer, header: dict[str, Any]) -> None:
    """An operation that has written ``0123456789`` and answers from the offset it is told."""
    await peer.send(Kind.STARTED, {"pid": 1})
    start = header.get("from_offset", 0)
    if start < 10:
        await peer.raw(frames.encode_output(Kind.STDOUT, 0, start, b"0123456789"[start:]))
    await peer.send(Kind.EXITED, {"exit_code": 0})


@pytest.mark.parametrize("accept", ["text/event-stream", "application/x-ndjson"])
async def test_a_stream_goes_on_after_the_last_event_id(
    client: httpx2.AsyncClient, world: World, accept: str
) -> None:
    """What a browser's EventSource sends by itself; `from_offset` says the same."""
    await client.post(BOX + "/start")
    world.runtime.scripts["attach"] = world.runtime.scripts["exec"] = ring
    headers = {"accept": accept, "last-event-id": "4", "idempotency-key": "op"}
    attached = await client.get(BOX + "/operations/op", headers=headers)
    asked = await client.get(
        BOX + "/operations/op", headers={"accept": accept}, params={"fromOffset": 4}
    )
    again = await client.post(EXEC, json={"command": "c"}, headers=headers)
    for answer in (attached, asked, again):
        assert "456789" in answer.text or "NDU2Nzg5" in answer.text
        assert "0123" not in answer.text


async def test_ids_that_no_event_of_ours_had_are_refused(client: httpx2.AsyncClient) -> None:
    for id in (b"x", b"-1", b"1" * 19, "\u0661".encode(), b"1.0"):
        answer = await client.get(BOX + "/operations/op", headers={b"last-event-id": id})
        assert answer.status_code == 400


async def test_a_stream_asks_proxies_not_to_hold_it_back(client: httpx2.AsyncClient) -> None:
    answer = await client.post(EXEC, json={"command": ["a"]}, headers=FRAMES)
    assert answer.headers["x-accel-buffering"] == "no"


async def test_a_frame_over_the_limit_is_refused_before_it_comes(
    client: httpx2.AsyncClient, world: World
) -> None:
    announced = bytes([Kind.HEADER]) + (frames.MAX_FRAME + 1).to_bytes(4, "big")
    headers = {"content-type": frames.CONTENT_TYPE}
    answer = await client.post(EXEC, content=announced, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_FAILED")
    assert world.runtime.starts == 0


async def test_bodies_of_all_callers_together_have_a_limit(
    client: httpx2.AsyncClient, engine: Engine, world: World
) -> None:
    """What each may send alone would be too much of many."""
    small = msgspec.structs.replace(engine.settings.server, max_bodies=100)
    engine.settings = msgspec.structs.replace(engine.settings, server=small)
    async with AsyncExitStack() as stack:
        served = Served(engine, stack)
        hello = await served.listen(local=False)
        transport = httpx2.AsyncHTTPTransport(uds=hello["socket"])
        async with httpx2.AsyncClient(transport=transport, base_url="http://engine") as caller:
            answer = await caller.post(EXEC, json={"command": "x" * 100})
            assert (answer.status_code, answer.json()["code"]) == (429, "RATE_LIMITED")
            half = frames.encode(Kind.HEADER, b" " * 200)[:-1]
            content = {"content-type": frames.CONTENT_TYPE}
            assert (await caller.post(EXEC, content=half, headers=content)).status_code == 429
            assert (await caller.post(EXEC, json={"command": ["a"]})).is_success
        await served.stop()
