import asyncio
import json
from typing import Any

import pytest

from atoll.engine.commands import calls
from atoll.engine.engine import Engine
from atoll.errors import (
    OperationInterruptedError,
    OperationNotFoundError,
    SandboxNotFoundError,
    ValidationFailedError,
)
from atoll.settings import LifecycleSettings
from atoll.wire.frames import Kind
from atoll.wire.process import ExecRequest
from atoll.wire.sandbox import NamespaceConfig, SandboxOptions, State
from integration.engine.calling import pending, run
from integration.engine.conftest import Opener
from integration.engine.scripted import Peer, World


async def test_fifty_first_calls_make_exactly_one_sandbox(engine: Engine, world: World) -> None:
    world.runtime.delay = 0.05
    outputs = await asyncio.gather(*(run(engine, "hi", op=f"o{n}") for n in range(50)))
    assert outputs == [b"hi\n"] * 50
    assert world.runtime.starts == 1
    assert len(world.runtime.running) == 1


async def test_a_caller_that_leaves_does_not_take_the_start_away(
    engine: Engine, world: World
) -> None:
    world.runtime.delay = 0.05
    first = asyncio.create_task(run(engine, "a"))
    second = asyncio.create_task(run(engine, "b", op="o2"))
    await asyncio.sleep(0.02)
    first.cancel()
    assert await second == b"b\n"
    assert world.runtime.starts == 1


async def test_a_container_that_dies_is_noticed_and_replaced_at_the_next_call(
    engine: Engine, world: World
) -> None:
    async with pending(engine, world) as task:
        (host_ref,) = world.runtime.running
        world.runtime.kill(host_ref)
        with pytest.raises(OperationInterruptedError) as caught:
            await task
        assert caught.value.context["reason"] == "container"
    info = await engine.info("N", "box")
    assert info.state is State.STOPPED
    assert world.left() == {}
    world.runtime.scripts.pop("exec")
    async with engine.sandbox("N", "box").use() as endpoint:
        assert endpoint.generation == info.generation + 1


async def test_reading_starts_nothing(engine: Engine, world: World) -> None:
    with pytest.raises(SandboxNotFoundError):
        await engine.info("N", "box")
    await engine.sandbox("N", "box").configure(SandboxOptions())
    assert (await engine.info("N", "box")).state is State.CREATED
    page = await engine.list("N", state=None, labels={}, cursor=None, limit=10)
    assert [info.id for info in page.sandboxes] == ["box"]
    with pytest.raises(OperationNotFoundError):
        async with calls.attach(engine.sandbox("N", "box"), "op", 0):
            pass
    with pytest.raises(OperationNotFoundError):
        await calls.control(engine.sandbox("N", "box"), "op", Kind.CANCEL)
    assert world.runtime.starts == 0


async def test_options_are_remembered_and_checked(engine: Engine) -> None:
    sandbox = engine.sandbox("N", "box")
    await sandbox.configure(SandboxOptions(labels={"a": "1"}, ttl_ms=60_000))
    record = await sandbox.configure(SandboxOptions(image="other"))
    assert (record.wanted.labels, record.wanted.image) == ({"a": "1"}, "other")
    assert record.expires_at
    version = record.version
    assert (await sandbox.configure(SandboxOptions(image="other"))).version == version
    with pytest.raises(ValidationFailedError):
        await sandbox.configure(SandboxOptions(instance_type="huge"))


async def test_idle_sandboxes_sleep_and_busy_ones_do_not(opener: Opener, world: World) -> None:
    async with opener(LifecycleSettings(sleep_after=0.2)) as engine:
        await engine.sandbox("N", "kept").configure(SandboxOptions(keep_alive=True))
        await run(engine, "x", id="kept")
        async with pending(engine, world):
            await asyncio.sleep(1.2)
            assert (await engine.info("N", "box")).state is State.RUNNING
        async with asyncio.timeout(3):
            while (await engine.info("N", "box")).state is not State.STOPPED:
                await asyncio.sleep(0.05)
        assert (await engine.info("N", "kept")).state is State.RUNNING


async def test_a_restarted_engine_finds_everything_as_it_was(opener: Opener, world: World) -> None:
    async with opener() as engine:
        await run(engine, "x")
        await run(engine, "x", id="asleep")
        await engine.sandbox("N", "asleep").stop()
    async with opener() as engine:
        assert await run(engine, "y") == b"y\n"
        assert world.runtime.starts == 2
        assert (await engine.info("N", "asleep")).state is State.STOPPED
        taken = set(world.claims.iterdir())
        await run(engine, "x", id="third")
        assert len(set(world.claims.iterdir()) - taken) == 1


async def test_a_sandbox_that_died_while_no_engine_ran_is_stopped(
    opener: Opener, world: World
) -> None:
    async with opener() as engine:
        await run(engine, "x")
    world.runtime.kill(next(iter(world.runtime.running)))
    async with opener() as engine:
        assert (await engine.info("N", "box")).state is State.STOPPED
        assert world.left() == {}
        assert await run(engine, "x") == b"x\n"


async def test_activity_is_written_for_the_next_engine(engine: Engine) -> None:
    await run(engine, "x")
    sandbox = engine.sandbox("N", "box")
    first = sandbox.record
    assert first
    await asyncio.sleep(1.1)
    await run(engine, "x", op="o2")
    await sandbox.note_activity()
    later = await engine.store.get("N", "box")
    assert later
    assert later.last_activity_at
    assert first.last_activity_at
    assert (later.last_activity_at - first.last_activity_at).total_seconds() > 1


async def test_the_header_says_what_was_asked(engine: Engine, world: World) -> None:
    request = ExecRequest(command="x", env={"A": "1", "B": None}, cwd="/tmp", timeout_ms=1_500)
    sandbox = engine.sandbox("N", "box")

    async def shell(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.EXITED, {"exit_code": 0})

    world.runtime.scripts["exec"] = shell
    async with calls.exec(sandbox, request, "op", cancel_on_drop=False, stdin=None) as found:
        assert [frame.kind async for frame in found] == [Kind.EXITED]
    header = next(h for h in world.runtime.seen if h["op"] == "exec")
    assert header["env"] == {"A": "1", "B": None}
    assert (header["session"], header["timeout"], header["cwd"]) == ("default", 1.5, "/tmp")
    assert json.dumps(header)


async def test_variables_set_at_the_same_time_are_all_kept(engine: Engine) -> None:
    sandbox = engine.sandbox("N", "box")
    await asyncio.gather(*(sandbox.set_env({f"A{n}": str(n)}) for n in range(20)))
    assert sandbox.record
    assert len(sandbox.record.env) == 20


async def test_internet_is_opened_and_closed_while_it_runs(engine: Engine, world: World) -> None:
    sandbox = engine.sandbox("N", "box")
    await sandbox.configure(SandboxOptions(enable_internet=False))
    await run(engine, "x")
    await sandbox.configure(SandboxOptions(enable_internet=True))
    assert world.networks.switched == ["direct"]


async def test_labels_apply_at_once_and_fall_back_to_the_namespace(
    engine: Engine, world: World
) -> None:
    await engine.configure_namespace("N", NamespaceConfig(labels={"team": "a"}))
    await run(engine, "x")
    await engine.sandbox("N", "other").configure(SandboxOptions(labels={"team": "b"}))

    async def found(team: str) -> list[str]:
        page = await engine.list("N", state=None, labels={"team": team}, cursor=None, limit=9)
        return [info.id for info in page.sandboxes]

    assert (await found("a"), await found("b")) == (["box"], ["other"])
    await engine.sandbox("N", "box").configure(SandboxOptions(labels={"team": "b"}))
    assert (await engine.info("N", "box")).labels == {"team": "b"}
    assert (await found("a"), await found("b")) == ([], ["box", "other"])
