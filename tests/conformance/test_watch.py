"""Watches and versions of trees, through a whole engine."""

import asyncio
import http.client
import json
import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

import atoll
import atoll.sync
from atoll import errors


async def until(watch: atoll.WatchStream, type: str, name: str) -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []
    while not seen or seen[-1] != (type, name):
        event = await asyncio.wait_for(anext(watch), 10)
        seen.append((event.type, event.path.rpartition("/")[2]))
    return seen


async def watchers(sandbox: atoll.Sandbox) -> int:
    """How many processes inside hold an inotify queue."""
    script = "readlink /proc/[0-9]*/fd/* 2>/dev/null | grep -c inotify || true"
    return int((await sandbox.exec(["sh", "-c", script])).stdout)


@pytest.mark.container
async def test_changes_are_told_as_they_happen(sandbox: atoll.Sandbox) -> None:
    await sandbox.mkdir("w/.git", recursive=True)
    async with sandbox.watch("w") as watch:
        first = await anext(watch)
        assert (first.type, first.path, first.is_directory) == ("watching", "/workspace/w", True)
        assert first.watch_id
        await sandbox.exec(["sh", "-c", "mkdir -p w/d/e && echo x > w/d/e/f"])
        assert [name for type, name in await until(watch, "create", "f")] == ["d", "e", "f"]
        await sandbox.write_file("w/.git/no", "x")
        await sandbox.write_file("w/yes", "x")
        assert "no" not in {name for _, name in await until(watch, "create", "yes")}
        await sandbox.rename_file("w/yes", "w/moved")
        await sandbox.delete_file("w/moved")
        assert [type for type, _ in await until(watch, "delete", "moved")][-3:] == [
            "move_from", "move_to", "delete",
        ]  # fmt: skip


@pytest.mark.container
async def test_include_names_what_is_told(sandbox: atoll.Sandbox) -> None:
    await sandbox.mkdir("w")
    async with sandbox.watch("w", include=["*.py"]) as watch:
        await anext(watch)
        await sandbox.write_file("w/a.txt", "x")
        await sandbox.write_file("w/b.py", "x")
        assert (await asyncio.wait_for(anext(watch), 10)).path == "/workspace/w/b.py"


@pytest.mark.container
async def test_leaving_the_loop_ends_the_watch_inside(sandbox: atoll.Sandbox) -> None:
    await sandbox.mkdir("w")
    before = await watchers(sandbox)
    async for event in sandbox.watch("w"):
        assert event.type == "watching"
        break
    for _ in range(100):
        if await watchers(sandbox) == before:
            return
        await asyncio.sleep(0.05)
    pytest.fail("the watch goes on")


@pytest.mark.parametrize("end", ["stop", "destroy"])
async def test_a_watch_ends_with_its_sandbox_and_says_so(sandbox: atoll.Sandbox, end: str) -> None:
    await sandbox.mkdir("w")
    watch = sandbox.watch("w")
    await anext(watch)
    await getattr(sandbox, end)()
    last = await asyncio.wait_for(anext(watch), 10)
    assert last.type == "stopped"
    assert last.reason in {"sandbox_stopped", f"sandbox_{end}ed"}
    with pytest.raises(StopAsyncIteration):
        await anext(watch)


async def test_a_watch_ends_with_its_directory(sandbox: atoll.Sandbox) -> None:
    await sandbox.mkdir("w")
    watch = sandbox.watch("w")
    await anext(watch)
    await sandbox.delete_file("w", recursive=True)
    rest = [(event.type, event.reason) async for event in watch]
    assert rest[-1] == ("stopped", "deleted")


@pytest.mark.container
async def test_what_cannot_be_watched_is_typed(sandbox: atoll.Sandbox) -> None:
    with pytest.raises(errors.FileNotFoundError) as caught:
        await anext(sandbox.watch("nothing"))
    assert caught.value.context["path"] == "/workspace/nothing"


async def test_the_blocking_sdk_has_the_same_watch(url: str, sandbox_id: str) -> None:
    def watch() -> list[str]:
        with atoll.sync.connect(url) as env:
            box = atoll.sync.get_sandbox(env.Sandbox, sandbox_id)
            box.mkdir("w")
            seen = []
            for event in box.watch("w"):
                seen.append(event.type)
                if event.type == "watching":
                    box.write_file("w/f", "x")
                else:
                    break
            box.destroy()
            return seen

    assert await asyncio.to_thread(watch) == ["watching", "create"]


@pytest.mark.container
@pytest.mark.parametrize("accept", ["text/event-stream", "application/x-ndjson"])
async def test_programs_without_our_sdk_can_watch(
    url: str, sandbox: atoll.Sandbox, accept: str
) -> None:
    await sandbox.mkdir("w")

    def watch() -> list[dict[str, object]]:
        connection = http.client.HTTPConnection("localhost", timeout=10)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(10)
        connection.sock.connect(url.removeprefix("unix://"))
        base = f"/v2/namespaces/Sandbox/sandboxes/{sandbox.id}/files"
        headers = {"accept": accept, "content-type": "application/json"}
        connection.request("POST", f"{base}/watch", json.dumps({"path": "w"}), headers)
        answer = connection.getresponse()
        assert (answer.headers["content-type"] or "").startswith(accept)
        seen: list[dict[str, object]] = []
        while not seen or seen[-1]["path"] != "/workspace/w/f":
            line = answer.readline().strip().removeprefix(b"data: ")
            if line.startswith(b"{"):
                seen.append(json.loads(line))
                if len(seen) == 1:
                    asyncio.run_coroutine_threadsafe(sandbox.write_file("w/f", "x"), loop)
        connection.close()
        return seen

    loop = asyncio.get_running_loop()
    first, last = await asyncio.to_thread(watch)
    assert (first["type"], first["path"]) == ("watching", "/workspace/w")
    assert first["watchId"]
    kind = (last["type"], last.get("eventType"))
    assert kind == (("event", "create") if "event" in accept else ("create", None))


async def test_changes_are_found_without_a_watch(sandbox: atoll.Sandbox, level: str) -> None:
    await sandbox.write_file("w/f", "1")
    base = await sandbox.check_changes("w")
    assert base.status == "unchanged"
    assert (await sandbox.check_changes("w", since=base.version)).status == "unchanged"
    if level != "gvisor":  # see its "inode numbers, ctime"
        await sandbox.stop()
        assert (await sandbox.check_changes("w", since=base.version)).status == "unchanged"
    await sandbox.write_file("w/f", "2")
    changed = await sandbox.check_changes("w", since=base.version)
    assert (changed.status, changed.version != base.version) == ("changed", True)
    other = await sandbox.check_changes("w", since=base.version, include=["*.py"])
    assert (other.status, other.reason) == ("resync", "expired")


@pytest.mark.container
async def test_versions_outlive_a_restart_but_for_trees_in_memory(
    sandbox: atoll.Sandbox, level: str
) -> None:
    for path in ("/workspace/w", "/dev/shm/w"):
        await sandbox.write_file(f"{path}/f", "1")
    disk, memory = [await sandbox.check_changes(path) for path in ("/workspace/w", "/dev/shm/w")]
    await sandbox.stop()
    await sandbox.write_file("/dev/shm/w/f", "1")
    kept = await sandbox.check_changes("/workspace/w", since=disk.version)
    assert kept.status == ("changed" if level == "gvisor" else "unchanged")
    found = await sandbox.check_changes("/dev/shm/w", since=memory.version)
    assert (found.status, found.reason) == ("resync", "restarted")


async def test_a_whole_watch_as_a_web_answer(sandbox: atoll.Sandbox) -> None:
    await sandbox.mkdir("w")

    async def body() -> AsyncIterator[bytes]:
        with suppress(GeneratorExit):
            async for data in sandbox.watch("w").sse():
                yield data

    events = atoll.parse_sse_stream(body())
    assert (await anext(events))["type"] == "watching"
    await sandbox.write_file("w/f", "x")
    assert (await anext(events))["eventType"] == "create"
    await events.aclose()
