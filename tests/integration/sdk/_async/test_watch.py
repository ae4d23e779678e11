"""A watch says how it ended; it never goes on over a gap."""

import json

import pytest

import atoll
from atoll import errors
from atoll.wire import frames
from atoll.wire.frames import Kind
from integration.sdk.engine_double import Answer, EngineDouble

WATCH = "POST /files/watch"


def event(type: str, **more: object) -> bytes:
    fields = {"type": type, "path": "/w", "timestamp": "2026-01-01T00:00:00Z", **more}
    return frames.encode_json(Kind.EVENT, fields)


END = frames.encode_json(Kind.END, {})


async def test_the_options_are_sent(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    engine.script(WATCH, Answer(event("watching") + event("stopped", reason="deleted") + END))
    seen = [found async for found in sandbox.watch("src", recursive=False, include=["*.py"])]
    assert [found.type for found in seen] == ["watching", "stopped"]
    assert engine.seen[0].json() == {"path": "src", "recursive": False, "include": ["*.py"]}


async def test_include_and_exclude_exclude_each_other(sandbox: atoll.Sandbox) -> None:
    with pytest.raises(errors.ValidationFailedError, match="exclude each other"):
        sandbox.watch("src", include=["*.py"], exclude=["*.pyc"])
    with pytest.raises(errors.ValidationFailedError, match="list of globs"):
        await sandbox.check_changes("src", include="*.py")


@pytest.mark.parametrize("cut", [None, 3])
async def test_a_watch_that_is_lost_is_an_error(
    engine: EngineDouble, sandbox: atoll.Sandbox, cut: int | None
) -> None:
    body = event("watching")
    engine.script(WATCH, Answer(body + END, cut=len(body) + cut) if cut else Answer(body))
    watch = sandbox.watch("src")
    assert (await anext(watch)).type == "watching"
    with pytest.raises(errors.OperationInterruptedError):
        await anext(watch)
    assert len(engine.seen) == 1


async def test_the_events_are_those_of_0_12(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    failed = frames.encode_json(Kind.ERROR, errors.WatchStartError("no more").to_wire())
    engine.script(WATCH, Answer(event("watching", watchId="w") + event("modify") + failed))
    told = [json.loads(data.removeprefix(b"data: ")) async for data in sandbox.watch("src").sse()]
    assert (told[0]["type"], told[0]["watchId"]) == ("watching", "w")
    assert (told[1]["type"], told[1]["eventType"], told[1]["isDirectory"]) == (
        "event", "modify", False,
    )  # fmt: skip
    assert (told[2]["type"], told[2]["error"]) == ("error", "no more")


async def test_leaving_the_block_closes_the_connection(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(WATCH, Answer(event("watching"), hold=True))
    async with sandbox.watch("src") as watch:
        await anext(watch)
    with pytest.raises(StopAsyncIteration):
        await anext(watch)
