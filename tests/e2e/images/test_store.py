"""The store as engines use it: shared, safe to interrupt, never taking what is in use."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.errors import ImageNotFoundError, ImagePullFailedError, ResourceBusyError
from atoll.images.store import ImageStore
from atoll.settings import ImageSettings, StorageSettings
from e2e.images.registry import Registry, layer, serve


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serve() as registry:
        registry.add("app", layer({"a": b"1"}))
        yield registry


async def test_an_image_in_use_is_not_removed(
    store: ImageStore, registry: Registry, tmp_path: Path
) -> None:
    image = await store.pull(f"{registry.address}/app")
    await store.hold(image.digest, "engine.sandbox", tmp_path)
    with pytest.raises(ResourceBusyError):
        await store.remove(f"{registry.address}/app")
    assert image.layers[0].is_dir()
    await store.release(image.digest, "engine.sandbox")
    await store.remove(f"{registry.address}/app")
    with pytest.raises(ImageNotFoundError):
        await store.resolve(f"{registry.address}/app")


async def test_removing_what_is_not_there_is_a_typed_error(store: ImageStore) -> None:
    with pytest.raises(ImageNotFoundError):
        await store.remove("nothing")


async def test_two_engines_see_the_same_images(
    store: ImageStore, registry: Registry, tmp_path: Path
) -> None:
    image = await store.pull(f"{registry.address}/app")
    other = ImageStore(StorageSettings(cache_dir=tmp_path / "cache"), ImageSettings())
    assert (await other.resolve(f"{registry.address}/app")).layers == image.layers
    assert [info.digest for info in await other.list()] == [image.digest]


async def test_without_a_stand_in_the_failure_of_the_pull_is_told(store: ImageStore) -> None:
    aliased = ImageStore(
        StorageSettings(cache_dir=store._cache_dir),
        ImageSettings(image_aliases={"cloudflare/": "127.0.0.1:1/mirror"}),
    )
    with pytest.raises(ImagePullFailedError):
        await aliased.obtain("cloudflare/sandbox")


async def test_a_host_that_is_not_to_be_trusted_gives_sandboxes_nothing(tmp_path: Path) -> None:
    settings = ImageSettings(trust_host_ca=False)
    assert await ImageStore(StorageSettings(cache_dir=tmp_path), settings).trust() is None
