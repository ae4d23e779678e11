"""Files in memory count against the sandbox's own limit, and a full one is an answer."""

import asyncio
import json
import tarfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from atoll import errors
from atoll.wire.frames import Kind
from e2e.runtime.boxes import Bench, Box

pytestmark = pytest.mark.e2e

MIB = 1 << 20


def send(box: Box, op: str, body: Iterable[bytes], **fields: Any) -> Any:
    with box.connect() as connection:
        connection.header(op=f"fs.{op}", **fields)
        try:
            for chunk in body:
                connection.send(Kind.DATA, chunk)
            connection.send(Kind.END)
        except OSError:
            pass
        return json.loads(connection.until(Kind.REPLY).payload)


def charged(box: Box, group: str) -> int:
    """Bytes that count against a cgroup of the sandbox, in either version."""
    found = Path("/sys/fs/cgroup")
    for name in ("memory.usage_in_bytes", "memory.current"):
        for file in found.glob(f"**/{box.spec.host_ref}/{group}/{name}"):
            return int(file.read_text())
    raise FileNotFoundError(group)


@pytest.mark.parametrize("user", ["0:0", "1000:1000"])
async def test_what_is_written_to_memory_counts_as_the_sandboxs(bench: Bench, user: str) -> None:
    async with bench.running(memory=128 * MIB) as box:
        before = charged(box, "agent")
        send(box, "write_file", [bytes(MIB)] * 48, path="/dev/shm/x", user=user)
        assert charged(box, "user") > 48 * MIB
        assert charged(box, "agent") - before < 16 * MIB
        send(box, "write_file", [bytes(MIB)] * 8, path="/tmp/on-disk", user=user)


async def test_a_full_memory_is_no_space_and_ends_no_command(bench: Bench) -> None:
    async with bench.running(memory=64 * MIB) as box:
        send(box, "write_file", [b"old"], path="/dev/shm/f")
        hold = "x=$(head -c 8000000 /dev/zero | tr '\\0' x); echo ready; sleep 5; echo alive"
        with box.start(["/bin/sh", "-c", hold]) as command:
            command.until(Kind.STDOUT)
            for append in (False, True):
                with pytest.raises(errors.NoSpaceError) as caught:
                    send(box, "write_file", [bytes(MIB)] * 400, path="/dev/shm/f", append=append)
                assert caught.value.context["path"] == "/dev/shm/f"
            assert box.call("hello")["pid"] == 1
            assert command.result().stdout == b"alive\n"
        assert box.sh("cat /dev/shm/f; ls -A /dev/shm") == "oldf\n"


async def test_a_killed_upload_leaves_nothing(bench: Bench) -> None:
    async with bench.running(memory=64 * MIB) as box:
        for path in ("/dev/shm/new", "/dev/shm"):
            with pytest.raises(errors.NoSpaceError):
                send(box, "upload", _archive(200 * MIB), path=path)
            assert box.sh("ls -A /dev/shm") == ""
        assert send(box, "upload", _archive(MIB), path="/dev/shm")["files"] == 1


def _archive(size: int) -> Iterable[bytes]:
    info = tarfile.TarInfo("f")
    info.size = size
    yield info.tobuf()
    for _ in range(size // MIB):
        yield b"x" * MIB  # zeros would become holes, which take no memory
    yield bytes(10_240)


async def test_a_link_to_memory_is_seen_through(bench: Bench) -> None:
    async with bench.running(memory=64 * MIB) as box:
        box.sh("ln -s /dev/shm/hidden/x /workspace/link; ln -s /dev/shm /workspace/dir")
        for path in ("/workspace/link", "/workspace/dir/a/b"):
            with pytest.raises(errors.NoSpaceError):
                send(box, "write_file", [bytes(MIB)] * 400, path=path)
        send(box, "write_file", [b"x"], path="/workspace/disk")
        send(box, "write_file", [b"x" * 500], path="/dev/shm/r")
        with pytest.raises(errors.NoSpaceError):
            box.call("fs.replace_in_files", paths=["/dev/shm/r"], old="x", new="y" * MIB)


async def test_many_files_at_once_stay_within_limits(bench: Bench) -> None:
    async with bench.running(memory=64 * MIB) as box:
        failures: list[str] = []

        def write(number: int) -> None:
            try:
                send(box, "write_file", [bytes(MIB)] * 30, path=f"/dev/shm/{number}")
            except errors.NoSpaceError:
                failures.append("NO_SPACE")

        threads = [threading.Thread(target=write, args=[number]) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert failures
        assert box.call("hello")["pid"] == 1


async def test_backups_that_are_put_back_on_a_disk_take_none_of_the_sandboxs(bench: Bench) -> None:
    """They did: eight at once in a small sandbox were killed, and a command with them."""
    async with bench.running(memory=32 * MIB) as box:
        failures: list[errors.SandboxError] = []

        def restore(number: int) -> None:
            try:
                send(box, "restore", _archive(20 * MIB), path=f"/workspace/{number}", user="0:0")
            except errors.SandboxError as error:
                failures.append(error)

        with box.start(["/bin/sh", "-c", "sleep 2; echo alive"]) as command:
            threads = [threading.Thread(target=restore, args=[number]) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
            assert command.result().stdout == b"alive\n"
        assert failures == []
        with pytest.raises(errors.NoSpaceError):
            send(box, "restore", _archive(100 * MIB), path="/dev/shm/x", user="0:0")
        assert box.call("hello")["pid"] == 1
