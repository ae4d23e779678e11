from datetime import datetime
from pathlib import Path

import pytest

from atoll.engine.engine import Engine
from atoll.errors import (
    DiskQuotaExceededError,
    FileExistsError,
    ResourceBusyError,
    SandboxNotFoundError,
    ValidationFailedError,
    VolumeInUseError,
    VolumeNotFoundError,
)
from atoll.wire.sandbox import SandboxOptions, State
from atoll.wire.volumes import CreateVolume, ListVolumeFiles, ListVolumes
from integration.engine.conftest import Opener
from integration.engine.scripted import World

MB = 10**6


async def test_a_volume_is_made_told_and_listed(engine: Engine) -> None:
    made = await engine.volumes.create("N", CreateVolume(name="b", size=20 * MB, shared=True))
    assert (made.name, made.size, made.shared, made.sandboxes) == ("b", 20 * MB, True, [])
    assert isinstance(made.created_at, datetime)
    await engine.volumes.create("N", CreateVolume(name="a"))
    await engine.volumes.create("Other", CreateVolume(name="a"))
    first = await engine.volumes.list("N", ListVolumes(limit=1))
    rest = await engine.volumes.list("N", ListVolumes(cursor=first.cursor))
    assert ([v.name for v in (*first, *rest)], rest.cursor) == (["a", "b"], None)
    assert await engine.volumes.get("N", "b") == made


async def test_the_same_volume_again_is_the_one_there_is(engine: Engine, world: World) -> None:
    wanted = CreateVolume(name="v", size=20 * MB)
    assert await engine.volumes.create("N", wanted) == await engine.volumes.create("N", wanted)
    assert len(await world.layers.list()) == 1
    with pytest.raises(FileExistsError):
        await engine.volumes.create("N", CreateVolume(name="v", size=30 * MB))


@pytest.mark.parametrize(("name", "size"), [("", 20 * MB), ("../v", 20 * MB), ("v", 1), ("v", -1)])
async def test_impossible_volumes_are_refused(engine: Engine, name: str, size: int) -> None:
    with pytest.raises(ValidationFailedError):
        await engine.volumes.create("N", CreateVolume(name=name, size=size))


async def test_what_is_not_there_is_said(engine: Engine) -> None:
    for call in (
        engine.volumes.get("N", "none"),
        engine.contents.opened("N", "none", "f"),
        engine.contents.files("N", "none", ListVolumeFiles()),
    ):
        with pytest.raises(VolumeNotFoundError):
            await call


async def start(engine: Engine, id: str, volumes: dict[str, str]) -> None:
    sandbox = engine.sandbox("N", id)
    await sandbox.configure(SandboxOptions(volumes=volumes))
    await sandbox.ensure_running()


async def test_a_start_mounts_them_and_info_tells_which(engine: Engine, world: World) -> None:
    await engine.volumes.create("N", CreateVolume(name="v"))
    await engine.volumes.create("N", CreateVolume(name="r", read_only=True))
    await start(engine, "box", {"/data": "v", "/ref": "r"})
    assert world.roots.attached == [("/data", False), ("/ref", True)]
    assert (await engine.info("N", "box")).volumes == {"/data": "v", "/ref": "r"}
    assert (await engine.volumes.get("N", "v")).sandboxes == ["box"]


async def test_one_writer_at_a_time_until_it_sleeps(engine: Engine, world: World) -> None:
    await engine.volumes.create("N", CreateVolume(name="v"))
    await start(engine, "one", {"/data": "v"})
    with pytest.raises(VolumeInUseError, match="'one'"):
        await start(engine, "two", {"/data": "v"})
    assert engine.sandbox("N", "two").is_in(State.CREATED)
    with pytest.raises(VolumeInUseError):
        await engine.volumes.delete("N", "v")
    await engine.sandbox("N", "one").stop()
    await start(engine, "two", {"/data": "v"})
    await engine.sandbox("N", "two").destroy()
    await engine.volumes.delete("N", "v")
    await engine.volumes.delete("N", "v")
    assert [name for name in await world.layers.list() if name.startswith("vol-")] == []


async def test_several_use_what_is_shared_or_only_read(engine: Engine) -> None:
    await engine.volumes.create("N", CreateVolume(name="s", shared=True))
    await engine.volumes.create("N", CreateVolume(name="r", read_only=True))
    for id in ("one", "two"):
        await start(engine, id, {"/s": "s", "/r": "r"})
    assert (await engine.volumes.get("N", "s")).sandboxes == ["one", "two"]


async def test_a_volume_that_is_missing_stops_the_start_and_leaves_nothing(
    engine: Engine, world: World
) -> None:
    with pytest.raises(VolumeNotFoundError):
        await start(engine, "box", {"/data": "none"})
    assert world.left() == {}


async def test_a_mount_that_fails_gives_the_volume_up(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def attach(*_args: object, **_options: object) -> None:
        raise ResourceBusyError("the test said so")

    monkeypatch.setattr(world.roots, "attach", attach)
    await engine.volumes.create("N", CreateVolume(name="v"))
    with pytest.raises(ResourceBusyError):
        await start(engine, "box", {"/data": "v"})
    assert world.left() == {}
    assert (await engine.volumes.get("N", "v")).sandboxes == []


async def test_a_restart_keeps_volumes_and_who_uses_them(opener: Opener, world: World) -> None:
    async with opener() as first:
        await first.volumes.create("N", CreateVolume(name="v"))
        await start(first, "box", {"/data": "v"})
    async with opener() as second:
        assert (await second.volumes.get("N", "v")).sandboxes == ["box"]
        with pytest.raises(VolumeInUseError):
            await start(second, "two", {"/data": "v"})
        await second.sandbox("N", "box").destroy()
        assert (await second.volumes.get("N", "v")).sandboxes == []
    async with opener() as third:
        assert (await third.volumes.get("N", "v")).name == "v"


async def test_a_layer_without_a_row_is_removed_by_the_next_engine(
    opener: Opener, world: World
) -> None:
    await world.layers.create("vol-lost", 20 * MB)
    async with opener():
        assert await world.layers.list() == []


async def private_box(engine: Engine, id: str, volume: str = "p") -> Path:
    """Start a sandbox with a copy of a private volume; return where the copy's files are."""
    await start(engine, id, {"/data": volume})
    record = engine.sandbox("N", id).record
    assert record
    layer = await engine.volumes._life.parts.layers.attach(f"cow-{record.host_ref}-0")
    return layer / "upper"


async def content(engine: Engine, path: str) -> bytes:
    file, _ = await engine.contents.opened("N", "p", path)
    with file:
        return file.read()


async def test_each_start_has_a_copy_of_its_own_that_goes_with_it(
    engine: Engine, world: World
) -> None:
    await engine.volumes.create("N", CreateVolume(name="p", private=True))
    one, two = await private_box(engine, "one"), await private_box(engine, "two")
    (one / "f").write_text("of one")
    assert [*two.iterdir()] == []
    assert [*await engine.contents.files("N", "p", ListVolumeFiles())] == []
    await engine.sandbox("N", "one").stop()
    assert [*(await private_box(engine, "one")).iterdir()] == []
    for id in ("one", "two"):
        await engine.sandbox("N", id).destroy()
    assert [name for name in await world.layers.list() if name.startswith("cow-")] == []


async def test_a_published_copy_is_what_others_begin_with_from_their_next_start_on(
    engine: Engine, world: World
) -> None:
    await engine.volumes.create("N", CreateVolume(name="p", private=True))
    one, two = await private_box(engine, "one"), await private_box(engine, "two")
    (one / "f").write_text("of one")
    told = await engine.volumes.publish("N", "p", "one")
    assert (told.name, told.private) == ("p", True)
    (one / "f").write_text("later")
    assert await content(engine, "f") == b"of one"
    assert [*two.iterdir()] == [], "what runs goes on with what it has"
    await engine.sandbox("N", "two").stop()
    assert ((await private_box(engine, "two")) / "f").read_text() == "of one"


async def test_what_was_published_meanwhile_is_not_overwritten(engine: Engine) -> None:
    await engine.volumes.create("N", CreateVolume(name="p", private=True))
    for id in ("one", "two"):
        (await private_box(engine, id) / "f").write_text(id)
    await engine.volumes.publish("N", "p", "one")
    with pytest.raises(ResourceBusyError):
        await engine.volumes.publish("N", "p", "two")
    assert await content(engine, "f") == b"one"


async def test_only_a_running_sandbox_with_a_copy_can_be_published(engine: Engine) -> None:
    await engine.volumes.create("N", CreateVolume(name="p", private=True))
    await engine.volumes.create("N", CreateVolume(name="s", shared=True))
    await private_box(engine, "one")
    await start(engine, "other", {"/data": "s"})
    for volume, id, error in (
        ("p", "none", SandboxNotFoundError),
        ("p", "other", ValidationFailedError),
        ("s", "other", ValidationFailedError),
        ("none", "one", ValidationFailedError),
    ):
        with pytest.raises(error):
            await engine.volumes.publish("N", volume, id)
    await engine.sandbox("N", "one").stop()
    with pytest.raises(ValidationFailedError):
        await engine.volumes.publish("N", "p", "one")


async def test_a_restart_finds_the_copies_of_what_runs_and_removes_others(
    opener: Opener, world: World
) -> None:
    async with opener() as engine:
        await engine.volumes.create("N", CreateVolume(name="p", private=True))
        copy = await private_box(engine, "one")
        (copy / "f").write_text("kept")
        await world.layers.create("cow-e0-gone-0", 1)
    async with opener() as engine:
        assert (copy / "f").read_text() == "kept"
        assert not await world.layers.exists("cow-e0-gone-0")
        await engine.sandbox("N", "one").destroy()
        assert not copy.exists()


async def test_a_package_cache_is_a_private_volume_with_the_tools_told_of_it(
    engine: Engine, world: World
) -> None:
    await engine.volumes.create("N", CreateVolume(name="p", private=True))
    await engine.volumes.create("N", CreateVolume(name="s", shared=True))
    box = engine.sandbox("N", "box")
    await box.configure(SandboxOptions(package_cache="p", env={"UV_CACHE_DIR": "/mine"}))
    await box.ensure_running()
    assert world.roots.attached == [("/var/cache/packages", False)]
    assert box.record
    assert box.record.in_force
    env = box.record.in_force.env
    assert env["PIP_CACHE_DIR"] == "/var/cache/packages/pip"
    assert env["UV_CACHE_DIR"] == "/mine", "the caller's own wins"
    await box.stop()
    await box.configure(SandboxOptions(package_cache="s"))
    with pytest.raises(ValidationFailedError, match="no package cache"):
        await box.ensure_running()
    await box.configure(SandboxOptions(package_cache=""))
    await box.ensure_running()
    assert "PIP_CACHE_DIR" not in box.record.in_force.env


async def test_a_volume_has_one_way_of_being_used(engine: Engine) -> None:
    with pytest.raises(ValidationFailedError, match="one of"):
        await engine.volumes.create("N", CreateVolume(name="v", private=True, shared=True))


async def test_another_limit_is_told_and_settled_after_a_crash(
    opener: Opener, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[tuple[str, int]] = []

    async def settle(layer_id: str, size: int) -> None:
        limits.append((layer_id[:3], size))

    async with opener() as engine:
        await engine.volumes.create("N", CreateVolume(name="v", size=20 * MB))
        assert (await engine.volumes.resize("N", "v", 30 * MB)).size == 30 * MB
        assert (await engine.volumes.get("N", "v")).size == 30 * MB
        with pytest.raises(ValidationFailedError):
            await engine.volumes.resize("N", "v", 1)
        with pytest.raises(VolumeNotFoundError):
            await engine.volumes.resize("N", "none", 30 * MB)
    monkeypatch.setattr(world.layers, "settle", settle)
    async with opener():
        assert limits == [("vol", 30 * MB)]


async def test_a_limit_that_does_not_fit_changes_nothing(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resize(layer_id: str, size: int) -> None:
        raise DiskQuotaExceededError(f"{layer_id} has more than {size}")

    await engine.volumes.create("N", CreateVolume(name="v", size=30 * MB))
    monkeypatch.setattr(world.layers, "resize", resize)
    with pytest.raises(DiskQuotaExceededError):
        await engine.volumes.resize("N", "v", 20 * MB)
    assert (await engine.volumes.get("N", "v")).size == 30 * MB
