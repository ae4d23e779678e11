import asyncio
from typing import Any

import pytest

from atoll.engine import calls
from atoll.engine.engine import Engine
from atoll.errors import OperationInterruptedError, OperationNotFoundError
from atoll.wire.frames import Kind
from atoll.wire.process import ExecRequest
from atoll.wire.sandbox import SandboxOptions
from integration.engine.scripted import Peer, World


async def watching(peer: Peer, header: dict[str, Any]) -> None:
    await peer.send(Kind.EVENT, {"type": "watching", "path": header["path"]})
    await peer.next()
    await peer.send(Kind.EVENT, {"type": "create", "path": "/x"})
    await peer.send(Kind.END, {})


async def test_an_open_watch_does_not_hold_off_sleep(engine: Engine, world: World) -> None:
    world.runtime.scripts["fs.watch"] = watching
    sandbox = engine.sandbox("N", "box")
    async with calls.watch(sandbox, {"op": "fs.watch", "path": "/w"}) as frames:
        await anext(frames)
        assert sandbox.idle


async def test_an_event_counts_as_use(engine: Engine, world: World) -> None:
    async def event_at_once(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.EVENT, {"type": "create", "path": "/x"})
        await peer.send(Kind.END, {})

    world.runtime.scripts["fs.watch"] = event_at_once
    sandbox = engine.sandbox("N", "box")
    await sandbox.ensure_running()
    async with calls.watch(sandbox, {"op": "fs.watch"}) as frames:
        sandbox.last_used = 0
        assert [frame.kind async for frame in frames] == [Kind.EVENT, Kind.END]
    assert sandbox.last_used > 0


async def test_a_watch_is_told_of_the_end_of_its_sandbox(engine: Engine, world: World) -> None:
    world.runtime.scripts["fs.watch"] = watching
    sandbox = engine.sandbox("N", "box")

    async def watch() -> None:
        async with calls.watch(sandbox, {"op": "fs.watch", "path": "/w"}) as frames:
            await anext(frames)
            await sandbox.stop()
            await anext(frames)

    with pytest.raises(OperationInterruptedError):
        await watch()


@pytest.mark.parametrize(
    ("request_", "option", "session"),
    [
        (ExecRequest(command="x"), None, "default"),
        (ExecRequest(command=["x"]), None, None),
        (ExecRequest(command="x", shell_state=False), None, None),
        (ExecRequest(command="x"), False, None),
        (ExecRequest(command="x"), True, "default"),
    ],
)
async def test_only_shell_text_runs_in_the_default_session(
    engine: Engine, request_: ExecRequest, option: bool | None, session: str | None
) -> None:
    sandbox = engine.sandbox("N", "box")
    await sandbox.configure(SandboxOptions(enable_default_session=option))
    assert calls.default_session(sandbox, request_) == session


async def test_what_needs_a_running_command_wakes_nothing(engine: Engine, world: World) -> None:
    async def nothing() -> Any:
        yield b""

    sandbox = engine.sandbox("N", "box")
    with pytest.raises(OperationNotFoundError):
        await calls.feed(sandbox, "op", nothing(), close=True)
    with pytest.raises(OperationNotFoundError):
        await calls.control(sandbox, "op", Kind.CANCEL)
    await asyncio.sleep(0)
    assert world.runtime.starts == 0
