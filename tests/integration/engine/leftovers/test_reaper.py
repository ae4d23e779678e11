from pathlib import Path

import pytest

from atoll.engine.engine import Engine
from atoll.engine.leftovers import reaper
from atoll.engine.lifecycle.sequence import Lifecycle
from integration.engine.scripted import World


@pytest.fixture
def lifecycle(engine: Engine) -> Lifecycle:
    return engine._shared.lifecycle


async def test_what_nobody_owns_is_removed_and_the_rest_is_left(
    engine: Engine, world: World, lifecycle: Lifecycle
) -> None:
    await engine.sandbox("N", "box").ensure_running()
    owned = dict(world.left())
    spec = next(iter(world.runtime.running.values()))
    world.runtime.running["e0-lost1"] = spec
    world.roots.mounted.add("e0-lost2")
    world.networks.used.add("e0-lost3")
    (world.state_dir / "run" / "e0-lost4" / "container").mkdir(parents=True)
    await world.layers.create("e0-lost5", 1)
    assert await reaper.sweep(lifecycle, engine.store) == 5
    assert world.left() == owned
    assert await reaper.sweep(lifecycle, engine.store) == 0


async def test_a_component_that_cannot_list_does_not_stop_the_others(
    engine: Engine, world: World, lifecycle: Lifecycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> list[str]:
        raise OSError

    monkeypatch.setattr(world.runtime, "list", broken)
    world.networks.used.add("e0-lost")
    assert await reaper.sweep(lifecycle, engine.store) == 1
    assert world.left() == {}


async def test_files_of_sleeping_sandboxes_are_owned(
    engine: Engine, world: World, lifecycle: Lifecycle, tmp_path: Path
) -> None:
    await engine.sandbox("N", "box").ensure_running()
    await engine.sandbox("N", "box").stop()
    layers = await world.layers.list()
    await reaper.sweep(lifecycle, engine.store)
    assert await world.layers.list() == layers != []


async def test_a_layer_that_cannot_be_deleted_now_is_tried_again_later(
    engine: Engine, world: World, lifecycle: Lifecycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(layer_id: str) -> None:
        raise OSError

    await world.layers.create("e0-lost", 1)
    with monkeypatch.context() as patched:
        patched.setattr(world.layers, "delete", busy)
        await reaper.sweep(lifecycle, engine.store)
    assert await world.layers.list() == ["e0-lost"]
    await reaper.sweep(lifecycle, engine.store)
    assert await world.layers.list() == []
