import asyncio
import errno
import os
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from atoll.errors import (
    ContainerUnavailableError,
    DiskQuotaExceededError,
    FileNotFoundError,
    FilesystemError,
    InvalidConfigError,
    ResourceBusyError,
    ValidationFailedError,
)
from atoll.host import linux
from atoll.host.mounts import mounts_below, read_mounts
from atoll.settings import StorageSettings
from atoll.storage.btrfs_layers import BtrfsLayers
from atoll.storage.layers import Backend, LayerStore
from atoll.storage.rootfs import RootfsStore
from e2e.storage.conftest import ID_BASE, ID_COUNT

pytestmark = pytest.mark.e2e

MB = 10**6
SIZE = 64 * MB


def loops(state_dir: Path) -> list[tuple[str, str]]:
    """Loop devices of this state directory's files, each with its file; the host has others."""
    found = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):  # somebody else's device that ends just now
            found.append((path.parts[3], path.read_text().strip()))
    return sorted((device, file) for device, file in found if file.startswith(f"{state_dir}/"))


async def test_a_layer_is_made_found_and_removed(layers: LayerStore) -> None:
    assert not await layers.exists("a")
    await layers.create("a", SIZE)
    await layers.create("b", SIZE)
    assert await layers.exists("a")
    assert sorted(await layers.list()) == ["a", "b"]
    await layers.delete("a")
    await layers.delete("a")
    assert await layers.list() == ["b"]


async def test_creating_again_keeps_the_files(layers: LayerStore) -> None:
    await layers.create("a", SIZE)
    file = await layers.attach("a") / "upper" / "file"
    file.write_text("kept")
    await layers.create("a", 2 * SIZE)
    assert file.read_text() == "kept"


async def test_a_layer_holds_no_more_than_its_size(layers: LayerStore) -> None:
    await layers.create("a", SIZE)
    await layers.create("b", SIZE)
    with pytest.raises(OSError) as caught:
        fill(await layers.attach("a") / "upper" / "big", 2 * SIZE)
    assert caught.value.errno in {errno.EDQUOT, errno.ENOSPC}
    assert (await layers.attach("a") / "upper" / "big").stat().st_size <= SIZE
    fill(await layers.attach("b") / "upper" / "other", SIZE // 2)


async def test_small_files_count_too(layers: LayerStore) -> None:
    """A million empty files must not fill the host's disk."""
    await layers.create("a", 8 * MB)
    upper = await layers.attach("a") / "upper"

    def fill_with_names() -> None:
        for number in range(200_000):
            (upper / f"{number:0>100}").touch()

    with pytest.raises(OSError):
        fill_with_names()


async def test_a_deleted_file_gives_its_space_back(layers: LayerStore) -> None:
    await layers.create("a", SIZE)
    file = await layers.attach("a") / "upper" / "big"
    for _ in range(3):
        fill(file, SIZE // 2)
        file.unlink()
        os.sync()


async def test_usage_follows_what_is_written(layers: LayerStore) -> None:
    await layers.create("a", SIZE)
    before = await layers.usage("a")
    fill(await layers.attach("a") / "upper" / "big", 20 * MB)
    assert 20 * MB <= await layers.usage("a") - before < 30 * MB


async def test_the_mount_survives_the_engine_and_is_adopted(
    settings: StorageSettings, backend: Backend, layers: LayerStore
) -> None:
    await layers.create("a", SIZE)
    (await layers.attach("a") / "upper" / "file").write_text("kept")
    before = loops(settings.state_dir), mounts_below(settings.state_dir, read_mounts())
    await layers.close()

    again = LayerStore(settings, backend=backend)
    await again.open()
    assert await again.list() == ["a"]
    assert (await again.attach("a") / "upper" / "file").read_text() == "kept"
    assert before == (loops(settings.state_dir), mounts_below(settings.state_dir, read_mounts()))
    await again.close()


async def test_files_survive_a_reboot(
    settings: StorageSettings, backend: Backend, layers: LayerStore
) -> None:
    await layers.create("a", SIZE)
    (await layers.attach("a") / "upper" / "file").write_text("kept")
    await layers.close(unmount=True)
    assert not mounts_below(settings.state_dir, read_mounts())
    assert not loops(settings.state_dir)

    again = LayerStore(settings, backend=backend)
    await again.open()
    assert (await again.attach("a") / "upper" / "file").read_text() == "kept"
    await again.close(unmount=True)


async def test_nobody_but_root_enters_and_nothing_there_is_setuid_or_a_device(
    layers: LayerStore, settings: StorageSettings
) -> None:
    await layers.create("a", SIZE)
    attached = await layers.attach("a")
    flags = os.statvfs(attached).f_flag
    assert flags & os.ST_NOSUID
    assert flags & os.ST_NODEV
    assert (settings.state_dir / "layers").stat().st_mode & 0o777 == 0o700


async def test_what_a_killed_engine_left_half_made_is_swept(
    settings: StorageSettings, backend: Backend, layers: LayerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", crash)
    if backend == "ext4":
        (settings.state_dir / "layers" / ".new-a").write_text("half")
    else:
        assert isinstance(layers._layers, BtrfsLayers)
        with pytest.raises(KeyboardInterrupt):
            layers._layers._create("a", SIZE)
    monkeypatch.undo()
    assert any(n.startswith(".new-") for n in os.listdir(settings.state_dir / "layers"))
    assert not await layers.exists("a")

    again = LayerStore(settings, backend=backend)
    await again.open()
    await again.close()
    assert not any(n.startswith(".new-") for n in os.listdir(settings.state_dir / "layers"))


async def test_a_layer_in_use_is_not_removed(
    layers: LayerStore, roots: RootfsStore, image: tuple[Path, Path]
) -> None:
    await layers.create("a", SIZE)
    await roots.mount("ref", image, "a", ID_BASE, ID_COUNT)
    with pytest.raises(ResourceBusyError):
        await layers.delete("a")
    await roots.unmount("ref")
    await layers.delete("a")
    assert not await layers.exists("a")


async def test_a_full_host_refuses_new_layers_and_keeps_nothing(
    settings: StorageSettings, backend: Backend
) -> None:
    stat = os.statvfs("/tmp")
    too_much = stat.f_bavail * stat.f_frsize // MB * 2
    store = LayerStore(
        StorageSettings(state_dir=settings.state_dir, layer_store_gb=10, reserve_mb=too_much),
        backend=backend,
    )
    await store.open()
    with pytest.raises(ContainerUnavailableError) as caught:
        await store.create("a", SIZE)
    assert caught.value.context["reason"] == "capacity"
    assert await store.list() == []
    await store.close(unmount=True)


async def test_names_that_lead_elsewhere_are_refused(layers: LayerStore) -> None:
    for name in ("", ".", "..", "../x", "a/b", "a\0", ".new-a", "a" * 200, "-rf"):
        with pytest.raises(ValidationFailedError):
            await layers.create(name, SIZE)


async def test_attaching_what_is_not_there_says_so(layers: LayerStore) -> None:
    with pytest.raises(FileNotFoundError):
        await layers.attach("nobody")


async def test_something_else_mounted_in_its_place_is_not_used(settings: StorageSettings) -> None:
    other = LayerStore(
        StorageSettings(state_dir=settings.state_dir / "other", layer_store_gb=10), backend="btrfs"
    )
    await other.open()
    (settings.state_dir / "layers").mkdir()
    linux.mount(
        settings.state_dir / "other" / "layers", settings.state_dir / "layers", flags=linux.MS_BIND
    )
    with pytest.raises(InvalidConfigError):
        await LayerStore(settings, backend="btrfs").open()
    linux.umount(settings.state_dir / "layers")
    await other.close(unmount=True)


def fill(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for _ in range(size // MB):
            file.write(b"x" * MB)
        file.flush()
        os.fsync(file.fileno())


async def test_a_store_the_kernel_shut_is_opened_again_when_no_root_is_left(
    settings: StorageSettings, folder: Path
) -> None:
    store = LayerStore(settings, backend="btrfs")
    await store.open()
    await store.create("a", SIZE)
    (await store.attach("a") / "upper" / "file").write_text("kept")
    assert not await store.is_shut()
    linux.mount("", settings.state_dir / "layers", flags=linux.MS_REMOUNT | linux.MS_RDONLY)
    assert await store.is_shut()
    assert await store.has_failed()
    with pytest.raises(FilesystemError, match="read-only"):
        await store.attach("a")
    with (settings.state_dir / "layers/a/upper/file").open(), pytest.raises(ResourceBusyError):
        await store.reopen()
    await store.reopen()
    assert not await store.is_shut()
    assert not await store.has_failed()
    assert (await store.attach("a") / "upper" / "file").read_text() == "kept"
    await store.create("b", SIZE)
    await store.close(unmount=True)


async def test_a_store_that_could_not_be_mounted_again_is_tried_again(
    settings: StorageSettings,
) -> None:
    """The kernel refuses while anybody, in whatever namespace, has the mount that failed."""
    store = LayerStore(settings, backend="btrfs")
    await store.open()
    await store.create("a", SIZE)
    linux.umount(settings.state_dir / "layers")
    assert await store.is_shut()
    await store.reopen()
    assert not await store.is_shut()
    assert await store.exists("a")
    await store.close(unmount=True)


async def test_a_store_that_is_not_mounted_does_not_say_that_a_layer_is_missing(
    settings: StorageSettings,
) -> None:
    """Whoever believed it would make an empty one in its place."""
    layers = LayerStore(settings, backend="btrfs")
    await layers.open()
    await layers.create("a", SIZE)
    await layers.snapshots.take("a", "s")
    folder = settings.state_dir / "layers"
    linux.umount(folder)
    for call in (layers.exists("a"), layers.attach("a"), layers.create("a", SIZE)):
        with pytest.raises(FilesystemError):
            await call
    refused: list[Coroutine[Any, Any, Any]] = [
        layers.snapshots.take("a", "t"), layers.snapshots.attach("s"),
        layers.snapshots.usage("s"), layers.snapshots.clone("s", "b", SIZE),
        layers.snapshots.delete("s"),
    ]  # fmt: skip
    for snapshots in refused:
        with pytest.raises(ContainerUnavailableError):  # callers try again
            await snapshots
    await layers.open()
    assert await layers.exists("a")
    assert await layers.snapshots.attach("s")
    await layers.close(unmount=True)


async def test_calls_wait_while_the_store_is_opened_again(layers: LayerStore) -> None:
    await layers.create("a", SIZE)

    await layers.snapshots.take("a", "s")

    async def ask() -> list[bool]:
        return [
            await layers.exists("a") and (await layers.snapshots.attach("s")).exists()
            for _ in range(100)
        ]

    asked = asyncio.create_task(ask())
    await asyncio.gather(asked, *(layers.reopen() for _ in range(3)))
    assert all(asked.result())


async def test_a_larger_limit_is_there_at_once_and_a_smaller_one_when_it_fits(
    layers: LayerStore,
) -> None:
    await layers.create("a", SIZE)
    big = await layers.attach("a") / "upper" / "big"
    with pytest.raises(OSError):
        fill(big, 2 * SIZE)
    await layers.resize("a", 3 * SIZE)
    big = await layers.attach("a") / "upper" / "big"
    fill(big, SIZE + 20 * MB)
    with pytest.raises(DiskQuotaExceededError) as caught:
        await layers.resize("a", SIZE)
    assert caught.value.context["size"] == SIZE
    big = await layers.attach("a") / "upper" / "big"
    assert big.stat().st_size == SIZE + 20 * MB
    big.write_bytes(os.urandom(2 * SIZE))  # the limit is as it was
    big.unlink()
    await layers.resize("a", SIZE)
    big = await layers.attach("a") / "upper" / "big"
    with pytest.raises(OSError):
        fill(big, 2 * SIZE)
    with pytest.raises(FileNotFoundError):
        await layers.resize("none", SIZE)


async def test_a_limit_is_settled_only_where_it_differs(
    layers: LayerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await layers.create("a", SIZE + 1)
    await layers.settle("a", SIZE + 1)
    await layers.settle("a", 2 * SIZE)
    fill(await layers.attach("a") / "upper" / "big", SIZE + SIZE // 2)
    monkeypatch.setattr(layers, "resize", None)  # not called: it would cost a copy of ext4 files
    await layers.settle("a", 2 * SIZE)


async def test_a_duplicate_shares_nothing_that_can_be_written(layers: LayerStore) -> None:
    await layers.create("a", SIZE)
    origin = await layers.attach("a") / "upper"
    (origin / "f").write_text("origin")
    await layers.duplicate("a", "b", SIZE)
    await layers.duplicate("a", "b", SIZE)
    copy = await layers.attach("b") / "upper"
    (copy / "f").write_text("copy")
    (copy / "g").touch()
    assert (origin / "f").read_text() == "origin"
    assert [path.name for path in origin.iterdir()] == ["f"]
    await layers.delete("a")
    assert (copy / "f").read_text() == "copy"
    with pytest.raises(OSError):
        fill(copy / "big", 2 * SIZE)


async def test_an_ext4_layer_is_resized_at_rest_only(settings: StorageSettings) -> None:
    """One that is mounted and changed from outside is lost."""
    store = LayerStore(settings, backend="ext4")
    await store.open()
    try:
        await store.create("a", SIZE)
        file = (await store.attach("a") / "upper" / "f").open("w")
        with file, pytest.raises(ResourceBusyError):
            await store.resize("a", 2 * SIZE)
        await store.resize("a", 2 * SIZE)
    finally:
        await store.close(unmount=True)


async def test_a_trimmed_store_gives_deleted_files_back_to_the_hosts_disk(
    settings: StorageSettings,
) -> None:
    store = LayerStore(settings, backend="btrfs")
    await store.open()
    try:
        await store.create("a", 200 * MB)
        fill(await store.attach("a") / "upper" / "big", 100 * MB)
        os.sync()
        before = await store.space()
        assert before
        assert before.taken > 100 * MB
        (await store.attach("a") / "upper" / "big").unlink()
        async with asyncio.timeout(30):  # until the deletion is committed
            shrunk = 0
            while shrunk < 90 * MB:
                os.sync()
                shrunk += await store.trim()
        after = await store.space()
        assert after
        assert after.taken < before.taken - 90 * MB
        await store.trim_if_worth()
    finally:
        await store.close(unmount=True)
