"""Options of a sandbox are sent once, before its first operation."""

import asyncio

import atoll
from atoll import errors
from integration.sdk.engine_double import Answer, EngineDouble, failing

INFO = Answer(
    b'{"id":"b","namespace":"Sandbox","state":"created","generation":0,"image":"i",'
    b'"instanceType":"lite","isolation":"container","runtime":"runc","wanted":{},'
    b'"limits":{"memory":1,"cpu":1,"disk":1,"pids":1},"createdAt":"2026-01-01T00:00:00Z"}'
)
PUT, MKDIR = "PUT /sandboxes/b", "POST /files/mkdir"


async def test_options_are_sent_once_also_when_many_calls_begin_at_once(
    engine: EngineDouble, env: atoll.Environment
) -> None:
    engine.script(PUT, INFO)
    engine.script(MKDIR, Answer())
    sandbox = atoll.get_sandbox(env.Sandbox, "b", sleep_after="5m", labels={"a": "b"})
    await asyncio.gather(*(sandbox.mkdir("/x") for _ in range(5)))
    assert [seen.json() for seen in engine.requests(PUT)] == [
        {"sleepAfter": 300_000, "labels": {"a": "b"}}
    ]
    assert engine.seen[0].method == "PUT"


async def test_options_that_were_refused_are_sent_again(
    engine: EngineDouble, env: atoll.Environment
) -> None:
    engine.script(PUT, failing(errors.InvalidImageError("bad")), INFO)
    engine.script(MKDIR, Answer())
    sandbox = atoll.get_sandbox(env.Sandbox, "b", image="x")
    try:
        await sandbox.mkdir("/x")
    except errors.InvalidImageError:
        await sandbox.mkdir("/x")
    assert len(engine.requests(PUT)) == 2


async def test_a_new_sandbox_after_destroy_gets_the_options_again(
    engine: EngineDouble, env: atoll.Environment
) -> None:
    engine.script(PUT, INFO)
    engine.script(MKDIR, Answer())
    engine.script("DELETE /sandboxes/b", Answer())
    sandbox = atoll.get_sandbox(env.Sandbox, "b", keep_alive=True)
    await sandbox.mkdir("/x")
    await sandbox.destroy()
    await sandbox.mkdir("/x")
    assert [seen.method for seen in engine.seen] == ["PUT", "POST", "DELETE", "PUT", "POST"]
