from pathlib import Path

from atoll.engine.bare import parts as bare


async def test_layers_are_directories(tmp_path: Path) -> None:
    layers = bare.BareLayers(tmp_path / "layers")
    await layers.create("a", 1)
    await layers.create("a", 1)
    assert await layers.exists("a")
    assert await layers.list() == ["a"]
    await layers.delete("a")
    await layers.delete("a")
    assert not await layers.exists("a")


async def test_the_root_of_a_sandbox_is_its_layer(tmp_path: Path) -> None:
    roots = bare.BareRoots(tmp_path)
    assert await roots.mount("r", [], "layer", 0, 0) == tmp_path / "layer"
    await roots.unmount("r")
    assert await roots.list() == []


async def test_nothing_is_made_for_a_network() -> None:
    networks = bare.BareNetworks()
    assert (await networks.acquire("r")).netns is None
    await networks.release("r")
    await networks.adopt([])
    await networks.set_mode("r", "direct")
    assert await networks.list() == []
    assert not networks.closes
