"""Pulling from a registry on loopback: what arrives, and what each failure is called."""

import asyncio
from collections.abc import Iterator

import pytest

from atoll.errors import ImageNotFoundError, ImagePullFailedError, InvalidImageError
from atoll.images.store import ImageStore
from e2e.images.registry import Registry, layer, serve


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serve() as registry:
        yield registry


async def test_a_pulled_image_has_its_layers_and_configuration(
    store: ImageStore, registry: Registry
) -> None:
    config = {"Env": ["A=1"], "Cmd": ["x"], "User": "7"}
    registry.add("some/app", layer({"a": b"1"}), layer({"b": b"2"}), config=config)
    image = await store.pull(f"{registry.address}/some/app")
    assert [sorted(p.name for p in path.iterdir()) for path in image.layers] == [["b"], ["a"]]
    assert image.config.env["A"] == "1"
    assert image.config.cmd == ("x",)
    assert image.config.user == "7"
    assert (await store.resolve(f"{registry.address}/some/app:latest")).digest == image.digest


async def test_many_who_miss_an_image_at_once_pull_it_once(
    store: ImageStore, registry: Registry
) -> None:
    registry.add("app", layer({"a": b"1"}))
    name = f"{registry.address}/app"
    images = await asyncio.gather(*(store.obtain(name) for _ in range(10)))
    assert len({image.digest for image in images}) == 1
    assert len([path for path in registry.asked if "/blobs/" in path]) == 2
    await store.obtain(name)
    assert len([path for path in registry.asked if "/blobs/" in path]) == 2


async def test_pull_fetches_a_newer_image_under_the_same_name(
    store: ImageStore, registry: Registry
) -> None:
    registry.add("app", layer({"a": b"1"}))
    first = await store.pull(f"{registry.address}/app")
    registry.add("app", layer({"a": b"2"}))
    second = await store.pull(f"{registry.address}/app")
    assert first.digest != second.digest
    assert (await store.resolve(first.digest)).layers == first.layers


async def test_an_image_the_registry_does_not_have(store: ImageStore, registry: Registry) -> None:
    with pytest.raises(ImageNotFoundError) as caught:
        await store.pull(f"{registry.address}/nothing:here")
    assert caught.value.suggestion


async def test_a_registry_that_is_not_there(store: ImageStore) -> None:
    with pytest.raises(ImagePullFailedError) as caught:
        await store.obtain("127.0.0.1:1/app")
    assert caught.value.context["registry"] == "127.0.0.1:1"
    assert "refused" in caught.value.context["log"]


async def test_names_of_our_own_are_not_asked_for_anywhere(store: ImageStore) -> None:
    with pytest.raises(ImageNotFoundError) as caught:
        await store.pull("atoll/base")
    assert "build-base" in str(caught.value.suggestion)


async def test_a_hostile_layer_leaves_nothing_in_the_store(
    store: ImageStore, registry: Registry
) -> None:
    registry.add("app", layer({"fine": b"1"}), layer({"../../out": b"2"}))
    with pytest.raises(InvalidImageError):
        await store.pull(f"{registry.address}/app")
    assert await store.list() == []
    assert await store.prune() == 0
    assert store._catalog.layer_ids() == []
    assert store._places.leftovers() == []
