import pytest

from atoll.engine.engine import Engine
from atoll.errors import ContainerUnavailableError, FilesystemError
from atoll.storage.buckets import client
from atoll.wire.sandbox import SandboxOptions
from integration.engine.scripted import World


async def start(engine: Engine) -> None:
    await engine.sandbox("N", "box").ensure_running()


async def test_a_sandbox_whose_files_are_missing_is_not_started_with_none(
    engine: Engine, world: World
) -> None:
    """An empty layer in their place would hide the loss, and look like data nobody ever wrote."""
    await start(engine)
    box = engine.sandbox("N", "box")
    await box.stop()
    layer = box.record.layer_id if box.record else ""
    await world.layers.delete(layer)
    with pytest.raises(FilesystemError, match="not in the layer store"):
        await start(engine)
    assert await world.layers.list() == []
    await world.layers.create(layer, 0)
    await start(engine)


async def test_environment_of_the_image_the_caller_and_unset_names(
    engine: Engine, world: World
) -> None:
    await engine.sandbox("N", "My_Box").configure(SandboxOptions(env={"A": "1", "B": None}))
    await engine.sandbox("N", "My_Box").ensure_running()
    (spec,) = world.runtime.running.values()
    assert spec.env == {"A": "1"}
    assert spec.hostname == "my-box"
    assert spec.run_dir.parent.name == spec.host_ref


async def test_processes_that_hang_in_a_bucket_are_freed_by_the_end_of_its_client(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that answers a byte a second would keep its sandbox from stopping for ever."""
    await start(engine)
    killed: list[str] = []
    remove = world.runtime.remove

    async def hanging(host_ref: str) -> None:
        if not killed:
            raise ContainerUnavailableError("processes did not end")
        await remove(host_ref)

    monkeypatch.setattr(world.runtime, "remove", hanging)
    monkeypatch.setattr(client, "kill_all", lambda folder: killed.append(folder.name))
    await engine.sandbox("N", "box").stop()
    assert killed == ["buckets"]
    assert world.runtime.running == {}
