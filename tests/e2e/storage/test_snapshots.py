import asyncio
import os
from pathlib import Path

import pytest

from atoll.errors import ContainerUnavailableError, FileNotFoundError, ValidationFailedError
from atoll.settings import StorageSettings
from atoll.storage.layers import Backend, LayerStore
from atoll.storage.rootfs import RootfsStore
from e2e.storage.conftest import ID_BASE, ID_COUNT

pytestmark = pytest.mark.e2e

MB = 10**6
SIZE = 64 * MB


async def upper(layers: LayerStore, layer_id: str) -> Path:
    return await layers.attach(layer_id) / "upper"


async def kept(layers: LayerStore, snapshot_id: str) -> Path:
    return await layers.snapshots.attach(snapshot_id) / "upper"


async def test_a_snapshot_keeps_what_the_layer_held_at_that_moment(layers: LayerStore) -> None:
    """Also what was written and is not on the disk yet."""
    await layers.create("a", SIZE)
    file = await upper(layers, "a") / "file"
    file.write_text("then")
    await layers.snapshots.take("a", "s1")
    file.write_text("now")
    (file.parent / "more").touch()
    assert (await kept(layers, "s1") / "file").read_text() == "then"
    assert os.listdir(await kept(layers, "s1")) == ["file"]
    assert await layers.snapshots.list() == ["s1"]
    assert await layers.list() == ["a"]


async def test_nobody_writes_to_a_snapshot(layers: LayerStore) -> None:
    await layers.create("a", SIZE)
    await layers.snapshots.take("a", "s1")
    with pytest.raises(OSError, match="Read-only"):
        (await kept(layers, "s1") / "file").write_text("x")


async def test_clones_share_nothing_writable(layers: LayerStore) -> None:
    await layers.create("a", SIZE)
    (await upper(layers, "a") / "file").write_text("a")
    await layers.snapshots.take("a", "s1")
    for name in ("b", "c"):
        await layers.snapshots.clone("s1", name, SIZE)
        (await upper(layers, name) / "file").write_text(name)
    contents = {name: (await upper(layers, name) / "file").read_text() for name in "abc"}
    assert contents == {"a": "a", "b": "b", "c": "c"}
    assert (await kept(layers, "s1") / "file").read_text() == "a"


async def test_a_clone_outlives_snapshot_and_origin(layers: LayerStore) -> None:
    await layers.create("a", SIZE)
    (await upper(layers, "a") / "file").write_bytes(data := os.urandom(5 * MB))
    await layers.snapshots.take("a", "s1")
    await layers.snapshots.clone("s1", "b", SIZE)
    await layers.delete("a")
    await layers.snapshots.delete("s1")
    await layers.snapshots.delete("s1")
    assert await layers.snapshots.list() == []
    assert (await upper(layers, "b") / "file").read_bytes() == data


async def test_a_snapshot_of_a_mounted_root_can_be_the_root_of_another(
    layers: LayerStore, roots: RootfsStore, folder: Path
) -> None:
    """The overlay goes on; the copy is mounted beside it, as a file system of its own."""
    lower = folder / "lower"
    (lower / "etc").mkdir(parents=True)
    (lower / "etc/passwd").write_text("lower")
    await layers.create("a", SIZE)
    first = await roots.mount("one", [lower], "a", ID_BASE, ID_COUNT)
    (first / "etc/passwd").write_text("changed")
    (first / "etc/gone").write_text("")
    (first / "etc/gone").unlink()
    await layers.snapshots.take("a", "s1")
    (first / "etc/passwd").write_text("later")
    await layers.snapshots.clone("s1", "b", SIZE)
    second = await roots.mount("two", [lower], "b", ID_BASE + ID_COUNT, ID_COUNT)
    assert (second / "etc/passwd").read_text() == "changed"
    assert (first / "etc/passwd").read_text() == "later"
    assert (second / "etc/passwd").stat().st_uid == ID_BASE + ID_COUNT
    assert os.statvfs(first).f_fsid != os.statvfs(second).f_fsid


async def test_calls_may_be_repeated_and_made_at_once(layers: LayerStore) -> None:
    await layers.create("a", SIZE)
    (await upper(layers, "a") / "file").write_text("first")
    await asyncio.gather(*(layers.snapshots.take("a", "s1") for _ in range(5)))
    (await upper(layers, "a") / "file").write_text("second")
    await layers.snapshots.take("a", "s1")
    await asyncio.gather(*(layers.snapshots.clone("s1", "b", SIZE) for _ in range(5)))
    (await upper(layers, "b") / "own").touch()
    await layers.snapshots.clone("s1", "b", SIZE)
    assert (await upper(layers, "b") / "file").read_text() == "first"
    assert (await upper(layers, "b") / "own").exists()


async def test_what_is_not_there_and_what_is_no_name_is_refused(layers: LayerStore) -> None:
    await layers.create("a", SIZE)
    for call in (layers.snapshots.attach("s1"), layers.snapshots.clone("s1", "b", SIZE)):
        with pytest.raises(FileNotFoundError):
            await call
    with pytest.raises(FileNotFoundError):
        await layers.snapshots.take("b", "s1")
    for call in (layers.snapshots.take("a", "../x"), layers.snapshots.delete("a/b")):
        with pytest.raises(ValidationFailedError):
            await call
    assert await layers.list() == ["a"]
    assert await layers.snapshots.list() == []


async def test_a_full_host_takes_no_snapshot(settings: StorageSettings, backend: Backend) -> None:
    store = LayerStore(settings, backend=backend)
    await store.open()
    await store.create("a", SIZE)
    await store.close()
    full = LayerStore(StorageSettings(state_dir=settings.state_dir, reserve_mb=10**9))
    await full.open()
    with pytest.raises(ContainerUnavailableError):
        await full.snapshots.take("a", "s1")
    assert await full.snapshots.list() == []
    await full.close(unmount=True)
    await store.close(unmount=True)


async def test_snapshots_survive_the_engine_and_half_made_ones_do_not(
    settings: StorageSettings, backend: Backend
) -> None:
    store = LayerStore(settings, backend=backend)
    await store.open()
    await store.create("a", SIZE)
    (await upper(store, "a") / "file").write_text("kept")
    await store.snapshots.take("a", "s1")
    await store.close(unmount=True)
    folder = settings.state_dir / "layers"
    await store.open()
    half = folder / ".snapshots" / (".new-s2" if backend == "btrfs" else ".new-s2.ext4")
    if backend == "btrfs":
        (folder / ".snapshots/s1").rename(half)
    else:
        half.write_bytes(b"half")
    again = LayerStore(settings, backend=backend)
    await again.open()
    assert not half.exists()
    assert await again.snapshots.list() == ([] if backend == "btrfs" else ["s1"])
    await again.close(unmount=True)
    await store.close(unmount=True)
