import base64
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atoll.engine.storage.room import Room
from atoll.server.buffered import Buffered, pieces
from atoll.server.spool import Spool
from atoll.wire import frames
from atoll.wire.agent import OUTPUT_LIMIT
from atoll.wire.frames import Frame, Kind

Ask = Callable[..., Any]


def output(kind: Kind, data: bytes) -> Frame:
    return Frame(kind, frames.encode_output(kind, 0, 0, data)[5:])


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path, 1 << 30, 0)


@pytest.fixture
def ask(tmp_path: Path, room: Room) -> Ask:
    async def asked(*given: Frame, **end: Any) -> tuple[int, Any]:
        buffer = Buffered("cmd", "default", lambda: Spool(tmp_path, OUTPUT_LIMIT, room.share()))
        with buffer:
            for one in given:
                await buffer.frame(one)
            exited = Frame(Kind.EXITED, json.dumps({"exit_code": 0} | end).encode())
            status, body = buffer.answer(exited, "r1")
            return status, json.loads(b"".join([piece async for piece in pieces(body)]))

    return asked


async def test_a_buffered_result_is_exact(ask: Ask) -> None:
    status, body = await ask(
        output(Kind.STDOUT, b'a\0"\xc3'),
        output(Kind.STDOUT, b"\xa9"),
        output(Kind.STDERR, b"e\xff"),
        Frame(Kind.HEARTBEAT, b""),
        exit_code=137,
        signal="SIGKILL",
        oom_killed=True,
        duration=1.5,
    )
    assert (status, body["stdout"], body["stderr"]) == (200, 'a\0"\u00e9', "e\ufffd")
    assert "stdoutBase64" not in body
    assert base64.b64decode(body["stderrBase64"]) == b"e\xff"
    assert (body["exitCode"], body["signal"], body["oomKilled"]) == (137, "SIGKILL", True)
    assert (body["duration"], body["sessionId"]) == (1500, "default")


async def test_a_character_that_is_cut_at_the_end_is_not_text(ask: Ask) -> None:
    _, body = await ask(output(Kind.STDOUT, b"a\xc3"))
    assert (body["stdout"], base64.b64decode(body["stdoutBase64"])) == ("a\ufffd", b"a\xc3")


async def test_an_agent_that_does_not_cut_is_cut_here(ask: Ask, room: Room) -> None:
    big = output(Kind.STDOUT, b"x" * (OUTPUT_LIMIT // 8))
    _, body = await ask(*[big] * 9)
    assert len(body["stdout"]) == OUTPUT_LIMIT
    assert room.taken == 0


async def test_the_largest_answer_needs_little_memory(tmp_path: Path, room: Room) -> None:
    part = output(Kind.STDOUT, b"\xff" * frames.CHUNK)
    with Buffered("c", None, lambda: Spool(tmp_path, OUTPUT_LIMIT, room.share())) as buffer:
        tracemalloc.start()
        try:
            for _ in range(OUTPUT_LIMIT // frames.CHUNK):
                await buffer.frame(part)
            _, body = buffer.answer(Frame(Kind.EXITED, b'{"exit_code": 0}'), "r1")
            size = sum([len(piece) async for piece in pieces(body)])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert size > 4 * OUTPUT_LIMIT
    assert peak < OUTPUT_LIMIT // 4


async def test_a_timeout_is_an_error_with_the_partial_output(ask: Ask) -> None:
    status, body = await ask(output(Kind.STDOUT, b"part"), exit_code=137, timed_out=True)
    assert (status, body["code"], body["requestId"]) == (408, "TIMEOUT", "r1")
    assert body["context"]["result"]["stdout"] == "part"


async def test_a_command_that_ends_its_session_is_an_error_with_the_code(ask: Ask) -> None:
    _, body = await ask(exit_code=7, session_ended=True)
    assert (body["code"], body["context"]["exit_code"]) == ("SESSION_TERMINATED", 7)
