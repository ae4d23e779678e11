from typing import Any

import pytest

from atoll.engine import sessions
from atoll.engine.engine import Engine
from atoll.engine.link import LinkError
from atoll.wire.frames import Kind
from atoll.wire.process import CreateSessionRequest
from integration.engine.scripted import Peer, World


async def test_a_session_is_made_with_what_was_asked(engine: Engine, world: World) -> None:
    async def create(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.REPLY, {"id": header["id"], "cwd": header["cwd"]})

    world.runtime.scripts["session.create"] = create
    endpoint = await engine.sandbox("N", "box").ensure_running()
    wanted = CreateSessionRequest(id="s", cwd="/tmp", command_timeout_ms=1_500)
    made = await sessions.create(endpoint, wanted)
    assert (made.id, made.cwd) == ("s", "/tmp")
    assert world.runtime.seen[-1]["command_timeout"] == 1.5


async def test_a_malformed_answer_is_the_agents_fault(engine: Engine, world: World) -> None:
    endpoint = await engine.sandbox("N", "box").ensure_running()
    with pytest.raises(LinkError):
        await sessions.listing(endpoint)


async def test_state_that_cannot_be_kept_or_restored_costs_no_stop_and_no_start(
    engine: Engine, world: World
) -> None:
    async def broken(peer: Peer, header: dict[str, Any]) -> None:
        await peer.raw(b"garbage")

    await engine.store.save_sessions("N", "box", b"not json")
    world.runtime.scripts |= {"session.export": broken, "session.import": broken}
    sandbox = engine.sandbox("N", "box")
    await sandbox.ensure_running()
    await sandbox.stop()
    await engine.store.save_sessions("N", "box", b"{}")
    await sandbox.ensure_running()


async def test_a_destroyed_sandbox_leaves_no_state_to_the_next_of_its_name(
    engine: Engine, world: World
) -> None:
    sandbox = engine.sandbox("N", "box")
    await sandbox.ensure_running()
    await sandbox.stop()
    assert await engine.store.sessions("N", "box") is not None
    await sandbox.destroy()
    assert await engine.store.sessions("N", "box") is None
