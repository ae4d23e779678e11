"""Named volumes, as a caller sees them; probe 4: links in the place of a mount lead nowhere."""

import asyncio
import io
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

import atoll
from atoll import errors

pytestmark = pytest.mark.beyond_pods("named volumes")

needs_mounts = pytest.mark.container  # the fake runtime's sandboxes share the host's files


class Place:
    """One environment, and volumes and sandboxes in it that go with the test."""

    def __init__(self, env: atoll.Environment) -> None:
        self.env = env
        self.volumes: list[atoll.Volume] = []
        self.boxes: list[atoll.Sandbox] = []

    async def volume(self, **options: bool | str) -> atoll.Volume:
        name = f"v-{uuid.uuid4().hex[:10]}"
        self.volumes.append(await self.env.volumes.create(name, **{"size": "64MB", **options}))  # type: ignore[arg-type]
        return self.volumes[-1]

    def box(self, **volumes: atoll.Volume) -> atoll.Sandbox:
        """Return a sandbox with *volumes* at ``/data/<name>``."""
        at = {f"/data/{name}": volume.name for name, volume in volumes.items()}
        self.boxes.append(
            atoll.get_sandbox(self.env.Sandbox, f"c-{uuid.uuid4().hex[:10]}", volumes=at)
        )
        return self.boxes[-1]


@pytest.fixture
async def place(url: str) -> AsyncIterator[Place]:
    async with atoll.connect(url) as env:
        found = Place(env)
        yield found
        for box in found.boxes:
            with suppress(atoll.SandboxError):
                await box.destroy()
        for volume in found.volumes:
            await env.volumes.delete(volume)


async def text(box: atoll.Sandbox, command: str) -> str:
    return (await box.exec(command, check=True)).stdout


async def test_files_without_any_sandbox(place: Place) -> None:
    volume = await place.volume()
    data = bytes(range(256)) * 5_000
    await volume.write("deep/down/f", data)
    await volume.write("/text", "häuser")
    await volume.write("stream", io.BytesIO(b"x" * 300_000))
    assert await volume.read("deep/down/f") == data
    assert (await volume.read("text")).decode() == "häuser"
    assert [(f.path, f.type, f.size) for f in await volume.list()] == [
        ("deep", "directory", 0), ("stream", "file", 300_000), ("text", "file", 7),
    ]  # fmt: skip
    page = await volume.list(limit=2)
    assert [f.path for f in await volume.list(cursor=page.cursor)] == ["text"]


async def test_what_a_volume_does_not_do(place: Place) -> None:
    volume = await place.volume()
    await volume.write("d/f", "x")
    for error, path in (
        (errors.FileNotFoundError, "none"),
        (errors.IsDirectoryError, "d"),
        (errors.NotDirectoryError, "d/f/g"),
        (errors.ValidationFailedError, "d/../../f"),
    ):
        with pytest.raises(error):
            await volume.read(path)
    with pytest.raises(errors.VolumeNotFoundError):
        await place.env.volumes.get("v-none")
    with pytest.raises(errors.FileExistsError):
        await place.env.volumes.create(volume.name, size="32MB")
    await place.env.volumes.create(volume.name, size="64MB")
    assert volume.name in [found.name for found in await place.env.volumes.list(limit=1_000)]


@pytest.mark.beyond_bwrap("users inside")
@needs_mounts
async def test_files_go_from_sandbox_to_sandbox_and_outlive_them(place: Place) -> None:
    volume = await place.volume()
    await volume.write("in", "given")
    first = place.box(v=volume)
    assert await text(first, "cd /data/v; cat in; echo made > out; chmod 640 out; chown 7:8 out")
    assert (await volume.info()).sandboxes == [first.id]
    assert await volume.read("out") == b"made\n"
    await first.sleep()
    assert await text(first, "cat /data/v/out") == "made\n"
    await first.destroy()
    second = place.box(again=volume)
    tell = "cd /data/again; find out -printf '%m:%U:%G\\n'; cat out"
    assert await text(second, tell) == "640:7:8\nmade\n"
    assert (await second.info()).volumes == {"/data/again": volume.name}


@needs_mounts
async def test_one_that_is_not_shared_has_one_sandbox_at_a_time(place: Place) -> None:
    volume = await place.volume()
    first, second = place.box(v=volume), place.box(v=volume)
    await text(first, "echo 1 > /data/v/f")
    with pytest.raises(errors.VolumeInUseError):
        await second.exec("true")
    with pytest.raises(errors.VolumeInUseError):
        await place.env.volumes.delete(volume)
    await first.sleep()
    assert await text(second, "cat /data/v/f") == "1\n"


@needs_mounts
async def test_a_shared_one_is_seen_by_all_at_once(place: Place) -> None:
    volume = await place.volume(shared=True)
    boxes = place.box(v=volume), place.box(v=volume)
    await asyncio.gather(*(text(box, f"echo {n} > /data/v/{n}") for n, box in enumerate(boxes)))
    for box in boxes:
        assert await text(box, "cat /data/v/*") == "0\n1\n"
    await volume.write("2", "2\n")
    assert await text(boxes[0], "cat /data/v/2") == "2\n"


@needs_mounts
async def test_a_read_only_one_cannot_be_written_or_remounted_inside(
    place: Place, level: str
) -> None:
    volume = await place.volume(read_only=True)
    await volume.write("f", "given")
    box = place.box(v=volume)
    tried = await box.exec(
        "cat /data/v/f; echo x > /data/v/f; mount -o remount,rw,bind /data/v; umount /data/v; "
        "touch /data/v/new; grep ' /data/v ' /proc/mounts"
    )
    assert tried.stdout.startswith("given")
    assert "Read-only" in tried.stderr
    assert level == "gvisor" or " ro," in tried.stdout  # that sees its root as one mount
    assert await volume.read("f") == b"given"
    assert [f.path for f in await volume.list()] == ["f"]


@pytest.mark.beyond_bwrap("disk")
@needs_mounts
async def test_its_limit_is_its_own(place: Place) -> None:
    volume = await place.volume(size="32MB")
    box = place.box(v=volume)
    filled = await box.exec("head -c 80M /dev/urandom > /data/v/big; echo ok > /workspace/f")
    assert "quota" in filled.stderr or "No space" in filled.stderr
    assert await text(box, "cat /workspace/f; rm /data/v/big; sync; echo 1 > /data/v/f") == "ok\n"


@needs_mounts
async def test_4_a_link_in_the_place_of_the_mount_is_refused(place: Place) -> None:
    volume = await place.volume()
    box = place.box()
    await text(box, "mkdir /data; ln -s / /data/v")
    moved = atoll.get_sandbox(place.env.Sandbox, box.id, volumes={"/data/v/etc/x": volume.name})
    await box.sleep()
    with pytest.raises(errors.SecurityError):
        await moved.exec("true")
    back = atoll.get_sandbox(place.env.Sandbox, box.id, volumes={})
    assert await text(back, "ls -d /etc/x || readlink /data/v") == "/\n"
    assert await volume.list() is not None
    assert (await volume.info()).sandboxes == []


@needs_mounts
async def test_4_links_that_a_sandbox_leaves_in_a_volume_lead_nowhere(place: Place) -> None:
    volume = await place.volume()
    links = "cd /data/v; ln -s /etc/passwd file; ln -s / root; ln -s ../../.. up"
    await text(place.box(v=volume), links)
    for path in ("file", "root/etc/passwd", "up/etc/passwd"):
        with pytest.raises(errors.SecurityError):
            await volume.read(path)
    for path in ("root/tmp/x", "up/x"):
        with pytest.raises(errors.SecurityError):
            await volume.write(path, "x")
    assert {f.path: f.target for f in await volume.list()} == {
        "file": "/etc/passwd", "root": "/", "up": "../../..",
    }  # fmt: skip


@pytest.mark.beyond_gvisor("FIFOs, sockets in files")
@needs_mounts
async def test_a_pipe_that_a_sandbox_leaves_in_a_volume_keeps_nobody_waiting(place: Place) -> None:
    volume = await place.volume()
    await text(place.box(v=volume), "mkfifo /data/v/pipe")
    with pytest.raises(errors.SecurityError):
        await volume.read("pipe")
    assert [(f.path, f.target) for f in await volume.list()] == [("pipe", None)]


@pytest.mark.beyond_bwrap("users inside")
@needs_mounts
async def test_no_set_id_program_of_a_volume_gives_rights(place: Place) -> None:
    """A volume may hold files of another tenant's root."""
    volume = await place.volume()
    box = place.box(v=volume)
    await text(box, "cp /usr/bin/id /data/v/id; chmod 6755 /data/v/id; chmod 755 /data")
    told = await box.exec("setpriv --reuid 1000 --regid 1000 --clear-groups /data/v/id -u")
    assert told.stdout == "1000\n"


async def test_files_are_moved_and_removed_without_any_sandbox(place: Place) -> None:
    volume = await place.volume()
    await volume.write("a/deep/f", "content")
    await volume.make_dir("b")
    await volume.rename("a/deep", "b/moved")
    assert (await volume.read("b/moved/f")).decode() == "content"
    with pytest.raises(errors.FileExistsError):
        await volume.rename("a", "b")
    with pytest.raises(errors.FilesystemError):
        await volume.remove("b")
    await volume.remove("b", recursive=True)
    await volume.remove("a")
    assert [f.path for f in await volume.list()] == []
    with pytest.raises(errors.FileNotFoundError):
        await volume.remove("a")


@needs_mounts
async def test_what_is_changed_from_outside_is_seen_inside_at_once(place: Place) -> None:
    volume = await place.volume(shared=True)
    await volume.write("d/f", "1")
    box = place.box(v=volume)
    assert await text(box, "cd /data/v/d; ls; touch from-inside") == "f\n"
    await volume.rename("d/f", "g")
    await volume.make_dir("new")
    assert await text(box, "cd /data/v; ls; find new -printf '%U:%m\\n'") == "d\ng\nnew\n0:755\n"
    await volume.remove("d", recursive=True)
    assert await text(box, "cd /data/v; ls") == "g\nnew\n"


@pytest.mark.beyond_bwrap("disk")
@pytest.mark.beyond_gvisor("removals from outside")
@needs_mounts
async def test_a_limit_changes_while_a_sandbox_uses_the_volume(place: Place) -> None:
    volume = await place.volume(size="32MB")
    box = place.box(v=volume)
    with pytest.raises(errors.DiskQuotaExceededError):
        await box.write_file("/data/v/big", b"x" * 50_000_000)
    with pytest.raises(errors.DiskQuotaExceededError):
        await volume.write("big", b"x" * 50_000_000)
    assert (await volume.resize("100MB")).size == 100_000_000
    await box.write_file("/data/v/big", b"x" * 50_000_000)
    with pytest.raises(errors.DiskQuotaExceededError):
        await volume.resize("32MB")
    assert (await volume.info()).size == 100_000_000
    await volume.remove("big")
    await volume.resize("32MB")
    filled = await box.exec("head -c 50M /dev/zero > /data/v/big")
    assert "quota" in filled.stderr or "No space" in filled.stderr


@pytest.mark.beyond_bwrap("disk")
@pytest.mark.beyond_gvisor("removals from outside")
@needs_mounts
async def test_a_full_volume_can_be_cleared(place: Place) -> None:
    """Where nothing can be written any more, a removal still is one step."""
    volume = await place.volume(size="32MB")
    box = place.box(v=volume)
    await text(
        box, "mkdir -p /data/v/d/e; cat /dev/urandom > /data/v/d/1; : > /data/v/d/e/2 || true"
    )
    await volume.remove("d", recursive=True)
    await text(box, "sync /data/v; head -c 10M /dev/zero > /data/v/f")


@needs_mounts
async def test_sandboxes_write_to_copies_of_a_private_one_that_go_with_them(place: Place) -> None:
    volume = await place.volume(private=True)
    await volume.write("f", "given\n")
    boxes = place.box(v=volume), place.box(v=volume)
    await asyncio.gather(*(text(box, f"echo {n} >> /data/v/f") for n, box in enumerate(boxes)))
    assert [await text(box, "cat /data/v/f") for box in boxes] == ["given\n0\n", "given\n1\n"]
    assert await volume.read("f") == b"given\n"
    await boxes[0].sleep()
    assert await text(boxes[0], "cat /data/v/f") == "given\n"


@needs_mounts
async def test_only_a_published_copy_reaches_others(place: Place) -> None:
    volume = await place.volume(private=True)
    boxes = place.box(v=volume), place.box(v=volume)
    await asyncio.gather(*(text(box, "id > /data/v/made") for box in boxes))
    await volume.publish(boxes[0].id)
    with pytest.raises(errors.ResourceBusyError):
        await volume.publish(boxes[1].id)
    assert b"uid=0" in await volume.read("made")
    assert await text(place.box(v=volume), "find /data/v/made -printf '%U\\n'") == "0\n"
    with pytest.raises(errors.ValidationFailedError):
        await (await place.volume()).publish(boxes[0].id)
