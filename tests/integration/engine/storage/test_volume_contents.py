import errno
import os
from pathlib import Path

import pytest

from atoll.engine.engine import Engine
from atoll.errors import FileNotFoundError, ResourceBusyError
from atoll.wire.volumes import (
    CreateVolume,
    ListVolumeFiles,
    MakeVolumeFolder,
    MoveVolumeFile,
    RemoveVolumeFile,
)
from integration.engine.scripted import World


async def test_files_come_and_go_without_a_sandbox(engine: Engine) -> None:
    await engine.volumes.create("N", CreateVolume(name="v"))
    async with engine.contents.writing("N", "v", "/d/f") as writing:
        await writing.write(b"con")
        await writing.write(b"tent")
        written = await writing.end()
    assert (written.path, written.size) == ("d/f", 7)
    file, told = await engine.contents.opened("N", "v", "d/f")
    with file:
        assert file.read() == b"content"
    assert (told.path, told.size) == ("d/f", 7)
    listed = await engine.contents.files("N", "v", ListVolumeFiles(path="/d"))
    assert [(f.path, f.type, f.size) for f in listed] == [("d/f", "file", 7)]


async def test_names_that_are_no_text_come_back_as_they_were_told(
    engine: Engine, world: World
) -> None:
    await engine.volumes.create("N", CreateVolume(name="v"))
    async with engine.contents.writing("N", "v", "a") as writing:
        await writing.end()
    (layer,) = world.state_dir.glob("layers/vol-*")
    Path(os.fsdecode(os.fsencode(layer) + b"/upper/\xff\xe4")).write_text("latin")
    first = await engine.contents.files("N", "v", ListVolumeFiles(limit=1))
    second = await engine.contents.files("N", "v", ListVolumeFiles(cursor=first.cursor))
    (told,) = second.files
    assert told.path == "\uefff\uefe4"
    file, _ = await engine.contents.opened("N", "v", told.path)
    with file:
        assert file.read() == b"latin"


async def test_a_write_that_breaks_off_changes_nothing(engine: Engine, world: World) -> None:
    await engine.volumes.create("N", CreateVolume(name="v"))

    async def broken() -> None:
        async with engine.contents.writing("N", "v", "f") as writing:
            await writing.write(b"half")
            raise ConnectionError

    with pytest.raises(ConnectionError):
        await broken()
    with pytest.raises(FileNotFoundError):
        await engine.contents.opened("N", "v", "f")
    assert [*world.state_dir.glob("layers/vol-*/work/*")] == []


async def test_a_draft_that_a_failed_store_does_not_let_go_goes_with_the_next_change(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure is not what the caller is told: that is why the file was not written."""
    await engine.volumes.create("N", CreateVolume(name="v"))

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    async def broken() -> None:
        async with engine.contents.writing("N", "v", "f") as writing:
            await writing.write(b"half")
            raise ConnectionError

    with monkeypatch.context() as failing:
        failing.setattr(Path, "unlink", read_only)
        with pytest.raises(ConnectionError):
            await broken()
    assert len([*world.state_dir.glob("layers/vol-*/work/*")]) == 1
    await write(engine, "g")
    assert [*world.state_dir.glob("layers/vol-*/work/*")] == []


async def paths(engine: Engine, folder: str = "") -> list[str]:
    found = await engine.contents.files("N", "v", ListVolumeFiles(path=folder))
    return [file.path for file in found]


async def write(engine: Engine, path: str, data: bytes = b"x") -> None:
    async with engine.contents.writing("N", "v", path) as writing:
        await writing.write(data)
        await writing.end()


async def test_folders_are_made_things_moved_and_removed(engine: Engine, world: World) -> None:
    await engine.volumes.create("N", CreateVolume(name="v"))
    await engine.contents.make_folder("N", "v", MakeVolumeFolder(path="/a/b"))
    await write(engine, "a/b/f")
    await engine.contents.move("N", "v", MoveVolumeFile(path="a/b", target="c"))
    assert (await paths(engine), await paths(engine, "c")) == (["a", "c"], ["c/f"])
    await engine.contents.remove("N", "v", RemoveVolumeFile(path="c", recursive=True))
    await engine.contents.remove("N", "v", RemoveVolumeFile(path="/a/"))
    assert await paths(engine) == []
    assert [*world.state_dir.glob("layers/vol-*/work/*")] == []


async def test_what_an_earlier_engine_left_half_done_goes_at_the_first_change(
    engine: Engine, world: World
) -> None:
    await engine.volumes.create("N", CreateVolume(name="v"))
    (layer,) = world.state_dir.glob("layers/vol-*")
    (layer / "work" / "atoll-1" / "deep").mkdir(parents=True)
    (layer / "work" / "atoll-2").touch()
    await engine.contents.make_folder("N", "v", MakeVolumeFolder(path="a"))
    assert [*(layer / "work").iterdir()] == []


async def test_a_file_is_not_written_into_contents_that_were_replaced(engine: Engine) -> None:
    """It would be told as written, and gone with the old contents."""
    await engine.volumes.create("N", CreateVolume(name="v"))
    async with engine.contents.writing("N", "v", "f") as writing:
        await writing.write(b"x")
        await engine.volumes.delete("N", "v")
        await engine.volumes.create("N", CreateVolume(name="v"))
        with pytest.raises(ResourceBusyError):
            await writing.end()
    assert await paths(engine) == []
