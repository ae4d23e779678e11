"""Commands of a sandbox with a scripted agent."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any

from atoll.engine.commands import calls
from atoll.engine.engine import Engine
from atoll.wire import frames
from atoll.wire.frames import Kind
from atoll.wire.process import ExecRequest
from integration.engine.scripted import Peer, World


async def run(engine: Engine, *command: str, id: str = "box", op: str = "op") -> bytes:
    out = b""
    request = ExecRequest(command=list(command))
    sandbox = engine.sandbox("N", id)
    async with calls.exec(sandbox, request, op, cancel_on_drop=True, stdin=None) as found:
        async for frame in found:
            if frame.kind == Kind.STDOUT:
                out += frames.decode_output(frame.payload).data
    return out


@asynccontextmanager
async def pending(engine: Engine, world: World, op: str = "op") -> Any:
    """A command that has started and does not end."""

    async def hang(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.STARTED, {"pid": 1})
        while (await peer.next()).kind != Kind.CANCEL:
            pass

    world.runtime.scripts["exec"] = hang
    task = asyncio.create_task(run(engine, "sleep", op=op))
    sandbox = engine.sandbox("N", "box")
    while sandbox.endpoint is None or not any(h["op"] == "exec" for h in world.runtime.seen):
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    yield task
    task.cancel()
    await asyncio.wait([task])
