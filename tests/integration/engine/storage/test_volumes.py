import os
from datetime import datetime
from pathlib import Path

import pytest

from atoll.engine.engine import Engine
from atoll.errors import (
    FileExistsError,
    FileNotFoundError,
    ResourceBusyError,
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


async def test_files_come_and_go_without_a_sandbox(engine: Engine) -> None:
    await engine.volumes.create("N", CreateVolume(name="v"))
    async with engine.volumes.writing("N", "v", "/d/f") as writing:
        await writing.write(b"con")
        await writing.write(b"tent")
        written = await writing.end()
    assert (written.path, written.size) == ("d/f", 7)
    file, told = await engine.volumes.opened("N", "v", "d/f")
    with file:
        assert file.read() == b"content"
    assert (told.path, told.size) == ("d/f", 7)
    listed = await engine.volumes.files("N", "v", ListVolumeFiles(path="/d"))
    assert [(f.path, f.type, f.size) for f in listed] == [("d/f", "file", 7)]


async def test_names_that_are_no_text_come_back_as_they_were_told(
    engine: Engine, world: World
) -> None:
    await engine.volumes.create("N", CreateVolume(name="v"))
    async with engine.volumes.writing("N", "v", "a") as writing:
        await writing.end()
    (layer,) = world.state_dir.glob("layers/vol-*")
    Path(os.fsdecode(os.fsencode(layer) + b"/upper/\xff\xe4")).write_text("latin")
    first = await engine.volumes.files("N", "v", ListVolumeFiles(limit=1))
    second = await engine.volumes.files("N", "v", ListVolumeFiles(cursor=first.cursor))
    (told,) = second.files
    assert told.path == "\uefff\uefe4"
    file, _ = await engine.volumes.opened("N", "v", told.path)
    with file:
        assert file.read() == b"latin"


async def test_a_write_that_breaks_off_changes_nothing(engine: Engine, world: World) -> None:
    await engine.volumes.create("N", CreateVolume(name="v"))

    async def broken() -> None:
        async with engine.volumes.writing("N", "v", "f") as writing:
            await writing.write(b"half")
            raise ConnectionError

    with pytest.raises(ConnectionError):
        await broken()
    with pytest.raises(FileNotFoundError):
        await engine.volumes.opened("N", "v", "f")
    assert [*world.state_dir.glob("layers/vol-*/work/*")] == []


async def test_what_is_not_there_is_said(engine: Engine) -> None:
    for call in (
        engine.volumes.get("N", "none"),
        engine.volumes.opened("N", "none", "f"),
        engine.volumes.files("N", "none", ListVolumeFiles()),
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
