from pathlib import Path

import pytest

from atoll.engine import building
from atoll.engine.bare import parts as bare
from atoll.engine.engine import Engine
from atoll.engine.leftovers import reaper
from atoll.errors import ContainerUnavailableError
from integration.engine.scripted import World


@pytest.fixture
def netns(world: World, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A namespace that slots have from now on."""
    path = Path("/run/netns/x")

    async def acquire(host_ref: str) -> bare.BareSlot:
        world.networks.used.add(host_ref)
        return bare.BareSlot(netns=path, nameservers=("192.0.2.53",))

    monkeypatch.setattr(world.networks, "acquire", acquire)
    return path


async def test_a_build_has_a_slot_that_the_reaper_leaves_alone(
    engine: Engine, world: World, netns: Path
) -> None:
    life = engine._shared.lifecycle
    async with building.network(life, "e0-build") as network:
        assert network == (netns, ("192.0.2.53",))
        await reaper.sweep(life, engine.store)
        assert world.networks.used == {"e0-build"}
    assert world.left() == {}


async def test_a_build_that_fails_gives_its_slot_back(
    engine: Engine, world: World, netns: Path
) -> None:
    with pytest.raises(ValueError, match="step"):
        async with building.network(engine._shared.lifecycle, "e0-build"):
            raise ValueError("step")
    assert world.left() == {}


async def test_a_slot_that_cannot_be_released_is_left_to_the_reaper(
    engine: Engine, world: World, netns: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(host_ref: str) -> None:
        raise OSError

    life = engine._shared.lifecycle
    with monkeypatch.context() as patched:
        patched.setattr(world.networks, "release", refuse)
        async with building.network(life, "e0-build"):
            pass
    assert world.networks.used
    assert await reaper.sweep(life, engine.store) == 1
    assert world.left() == {}


async def test_without_slots_there_is_no_build(engine: Engine, world: World) -> None:
    world.networks.failure = ContainerUnavailableError(context={"reason": "network"})
    with pytest.raises(ContainerUnavailableError):
        async with building.network(engine._shared.lifecycle, "e0-build"):
            pass
    assert world.left() == {}
