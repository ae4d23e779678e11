import asyncio

from atoll.engine.commands import calls
from atoll.engine.engine import Engine
from atoll.settings import LifecycleSettings
from atoll.wire.process import EnvRequest
from atoll.wire.sandbox import NamespaceConfig, SandboxOptions
from integration.engine.conftest import Opener
from integration.engine.scripted import World

Env = dict[str, str | None]


def started_with(world: World) -> dict[str, str]:
    """The variables of the container that runs."""
    (spec,) = world.runtime.running.values()
    return spec.env


def told(world: World) -> list[Env]:
    """What agents were told of variables since."""
    return [header["env"] for header in world.runtime.seen if header["op"] == "session.env"]


async def test_a_start_gets_all_variables_at_once(engine: Engine, world: World) -> None:
    await engine.configure_namespace("N", NamespaceConfig(env={"A": "n", "B": "n", "C": "n"}))
    sandbox = engine.sandbox("N", "box")
    await sandbox.configure(SandboxOptions(env={"A": "o", "B": "o"}))
    await calls.set_env(sandbox, EnvRequest(env={"A": "s", "C": None}))
    assert world.runtime.starts == 0
    await sandbox.ensure_running()
    assert started_with(world) == {"A": "s", "B": "o"}
    assert told(world) == []
    await sandbox.stop()
    await sandbox.ensure_running()
    assert started_with(world) == {"A": "s", "B": "o"}
    assert told(world) == []


async def test_the_option_env_applies_to_what_runs(engine: Engine, world: World) -> None:
    sandbox = engine.sandbox("N", "box")
    await sandbox.configure(SandboxOptions(env={"A": "1", "B": "1"}))
    await sandbox.ensure_running()
    await sandbox.configure(SandboxOptions(env={"A": "2"}))
    await sandbox.configure(SandboxOptions(env={"A": "2"}))
    await sandbox.configure(SandboxOptions(sleep_after_ms=1))
    assert told(world) == [{"A": "2", "B": None}]


async def test_set_variables_stay_above_the_option(engine: Engine, world: World) -> None:
    sandbox = engine.sandbox("N", "box")
    await sandbox.ensure_running()
    await calls.set_env(sandbox, EnvRequest(env={"A": "set"}))
    await sandbox.configure(SandboxOptions(env={"A": "option", "B": "option"}))
    await calls.set_env(sandbox, EnvRequest(env={"A": None}))
    assert told(world) == [{"A": "set"}, {"B": "option"}, {"A": None}]


async def test_a_variable_that_is_set_again_is_sent_again(engine: Engine, world: World) -> None:
    """A session may have changed it since."""
    sandbox = engine.sandbox("N", "box")
    await sandbox.ensure_running()
    for _ in range(2):
        await calls.set_env(sandbox, EnvRequest(env={"A": "1", "GONE": None}))
    assert told(world) == [{"A": "1", "GONE": None}] * 2


async def test_what_changes_during_a_start_is_not_lost(engine: Engine, world: World) -> None:
    world.runtime.delay = 0.05
    sandbox = engine.sandbox("N", "box")
    starting = asyncio.create_task(sandbox.ensure_running())
    while not world.runtime.running:
        await asyncio.sleep(0.001)
    await sandbox.configure(SandboxOptions(env={"A": "1"}))
    await calls.set_env(sandbox, EnvRequest(env={"B": "1"}))
    await starting
    assert told(world) == [{"A": "1", "B": "1"}]


async def test_sessions_that_slept_are_told_what_changed_meanwhile(
    engine: Engine, world: World
) -> None:
    """Their shells know the old values, whatever a fresh one starts with."""
    sandbox = engine.sandbox("N", "box")
    await sandbox.configure(SandboxOptions(env={"A": "1", "B": "1"}))
    await sandbox.ensure_running()
    await sandbox.stop()
    await sandbox.configure(SandboxOptions(env={"B": "1", "C": "1"}))
    await sandbox.ensure_running()
    operations = [header["op"] for header in world.runtime.seen]
    assert operations[-2:] == ["session.import", "session.env"]
    assert told(world) == [{"A": None, "C": "1"}]
    await sandbox.stop()
    await sandbox.ensure_running()
    assert len(told(world)) == 1


async def test_a_frozen_sandbox_is_told_when_it_thaws(opener: Opener, world: World) -> None:
    async with opener(LifecycleSettings(sleep_after=0.01)) as engine:
        sandbox = engine.sandbox("N", "box")
        await sandbox.configure(SandboxOptions(sleep_mode="freeze"))
        await sandbox.ensure_running()
        assert await sandbox.sleep_if_idle(0)
        await calls.set_env(sandbox, EnvRequest(env={"A": "1"}))
        await sandbox.configure(SandboxOptions(env={"B": "1"}))
        assert world.runtime.paused
        assert told(world) == []
        await sandbox.ensure_running()
        assert told(world) == [{"A": "1", "B": "1"}]


async def test_variables_set_as_the_sandbox_dies_are_there_at_its_next_start(
    engine: Engine, world: World
) -> None:
    sandbox = engine.sandbox("N", "box")
    await sandbox.ensure_running()
    (host_ref,) = world.runtime.running
    world.runtime.kill(host_ref)
    await calls.set_env(sandbox, EnvRequest(env={"A": "1"}))
    await sandbox.ensure_running()
    assert started_with(world) == {"A": "1"}
