import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.engine.link.link import Endpoint
from atoll.runtime.base import ContainerSpec
from atoll.runtime.fake import FakeRuntime


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[FakeRuntime]:
    found = FakeRuntime(tmp_path / "run")
    yield found
    for host_ref in await found.list():
        await found.remove(host_ref)


def spec(tmp_path: Path, host_ref: str = "r1") -> ContainerSpec:
    run_dir = tmp_path / "run" / host_ref / "container"
    run_dir.mkdir(parents=True)
    (tmp_path / "root").mkdir(exist_ok=True)
    return ContainerSpec(
        host_ref=host_ref, generation=3, identity="i", hostname="h", rootfs=tmp_path / "root",
        run_dir=run_dir,
        netns=None, id_base=0, id_count=1, memory=1, cpu=1, pids=1, env={"A": "1"},
    )  # fmt: skip


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the latter: gone between open and read
        return False
    return state != "Z"


async def test_an_agent_runs_is_found_again_and_is_removed(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    wanted = spec(tmp_path)
    container = await runtime.start(wanted)
    again = FakeRuntime(tmp_path / "run")
    assert await again.find("r1") == container
    assert await again.list() == ["r1"]
    endpoint = Endpoint(again, wanted.run_dir, "r1", 3)
    assert b'"generation":3' in (await endpoint.call({"op": "hello"})).replace(b" ", b"")
    assert (await again.usage("r1")).pids >= 1
    await again.remove("r1")
    assert not alive(container.pid)
    assert await again.find("r1") is None
    assert await again.list() == []
    await again.remove("r1")


async def test_commands_do_not_outlive_their_sandbox(runtime: FakeRuntime, tmp_path: Path) -> None:
    wanted = spec(tmp_path)
    await runtime.start(wanted)
    endpoint = Endpoint(runtime, wanted.run_dir, "r1", 3)
    mark = tmp_path / "pid"
    command = f"setsid sh -c 'echo $$ >{mark}; exec sleep 600' & sleep 600"
    async with await endpoint.open({"op": "exec", "id": "a", "command": command}):
        async with asyncio.timeout(5):
            while not mark.exists() or not mark.read_text():
                await asyncio.sleep(0.01)
        pid = int(mark.read_text())
        assert alive(pid)
        await runtime.remove("r1")
        async with asyncio.timeout(5):
            while alive(pid):
                await asyncio.sleep(0.01)


async def test_nobody_is_dialled_who_is_not_there(runtime: FakeRuntime, tmp_path: Path) -> None:
    with pytest.raises(ConnectionError):
        await runtime.dial(tmp_path, "r9")


async def test_a_recycled_process_id_is_not_taken_for_an_agent(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    wanted = spec(tmp_path)
    (wanted.run_dir / "pid").write_text(str(os.getpid()))
    assert await runtime.find("r1") is None
    await runtime.remove("r1")


async def test_a_paused_sandbox_goes_on_where_it_was(runtime: FakeRuntime, tmp_path: Path) -> None:
    wanted = spec(tmp_path)
    await runtime.start(wanted)
    await runtime.pause("r1")
    endpoint = Endpoint(runtime, wanted.run_dir, "r1", 3)
    calling = asyncio.create_task(endpoint.call({"op": "hello"}))
    await asyncio.sleep(0.1)
    assert not calling.done()
    await runtime.resume("r1")
    await calling
