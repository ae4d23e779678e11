"""Events are numbered: a stream that is lost goes on where it was."""

import pytest

import atoll
from atoll import errors
from atoll.wire import frames
from atoll.wire.frames import Kind
from integration.sdk.engine_double import Answer, EngineDouble

EVENTS = "GET /events"
END = frames.encode_json(Kind.END, {})


def event(seq: int, type: str = "running") -> bytes:
    return frames.encode_json(Kind.EVENT, {"seq": seq, "type": type, "at": "2026-01-01T00:00:00Z"})


async def test_what_is_kept_is_told_once(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    engine.script(EVENTS, Answer(event(1) + event(2, "stopped") + END))
    async with sandbox.events() as events:
        assert [found.type async for found in events] == ["running", "stopped"]


async def test_a_lost_stream_is_resumed_behind_the_last_event(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(
        EVENTS,
        Answer(event(1) + event(2), cut=len(event(1)) + 3),
        Answer(event(2)),
        Answer(END),
    )
    assert [found.seq async for found in sandbox.events(follow=True)] == [1, 2]
    assert ["after=1" in seen.query for seen in engine.seen] == [False, True, False]
    assert "after=2" in engine.seen[2].query
    assert all("follow=true" in seen.query for seen in engine.seen)


async def test_an_error_in_the_stream_is_raised(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    failure = frames.encode_json(Kind.ERROR, errors.InternalError("broken").to_wire())
    engine.script(EVENTS, Answer(event(1) + failure))
    events = sandbox.events()
    assert (await anext(events)).seq == 1
    with pytest.raises(errors.InternalError, match="broken"):
        await anext(events)


async def test_garbage_is_an_error(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    engine.script(EVENTS, Answer(frames.encode(Kind.EVENT, b"no json")))
    with pytest.raises(errors.VersionMismatchError):
        await anext(sandbox.events())
