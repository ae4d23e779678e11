"""Processes in real containers over the death of their engine, and over sleep."""

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

import atoll
from atoll.host import linux
from integration.engine.printing import survive
from integration.server.engines import EngineProcess

pytestmark = pytest.mark.e2e


class Engines:
    """Engines on one state directory, one after the other."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.now = EngineProcess(state_dir, level="container")
        assert "error" not in self.now.hello, self.now.hello
        self.url = f"unix://{self.now.hello['socket']}"

    def replace(self, away: float = 0.0) -> None:
        self.now.end(signal.SIGKILL)
        time.sleep(away)
        self.now = EngineProcess(self.state_dir, level="container")


@pytest.fixture
def engines() -> Iterator[Engines]:
    if os.geteuid():
        pytest.skip("needs root")
    found = Engines(Path(tempfile.mkdtemp(prefix="atoll-e2e-", dir="/tmp")))
    yield found
    with found.now.client() as client:
        for info in client.get("/v2/namespaces/Sandbox/sandboxes").json()["sandboxes"]:
            client.delete(f"/v2/namespaces/Sandbox/sandboxes/{info['id']}")
    assert list((found.state_dir / "logs").iterdir()) == []
    assert found.now.end() == 0
    shutil.rmtree(found.state_dir)


async def test_twenty_processes_lose_and_repeat_nothing_when_the_engine_is_killed(
    engines: Engines,
) -> None:
    await survive(engines.url, "box", engines.replace)


async def test_an_engine_killed_during_a_sleep_leaves_no_process_running(engines: Engines) -> None:
    """The next engine completes the stop; statuses say what became of each process."""
    async with atoll.connect(engines.url) as env:
        sandbox = atoll.get_sandbox(env.Sandbox, "box")
        stubborn = await sandbox.start_process("trap '' TERM; echo up; sleep 600; sleep 600")
        ended = await sandbox.start_process("exit 3")
        await stubborn.wait_for_log("up", 20)
        await ended.wait_for_exit(20)
        asking = threading.Thread(target=_ask_for_a_stop, args=[engines.now])
        asking.start()
        time.sleep(0.5)  # the stubborn one is given 2 s
        engines.replace()
        asking.join()
        found = {process.id: process for process in await sandbox.list_processes()}
        assert (found[ended.id].status, found[ended.id].exit_code) == ("failed", 3)
        assert found[stubborn.id].status == "killed"
        assert (await sandbox.get_state()).status == "stopped"
        assert (await stubborn.get_logs()).stdout == "up\n"


def _ask_for_a_stop(engine: EngineProcess) -> None:
    with suppress(httpx2.TransportError), engine.client() as client:
        client.post("/v2/namespaces/Sandbox/sandboxes/box/stop")


@pytest.mark.slow
async def test_logs_of_a_sandbox_share_one_limit_and_finished_ones_give_way(
    engines: Engines,
) -> None:
    """Six times 64 MiB of 256: the oldest are cut first, what is kept follows without a hole."""
    text = "head -c 62000000 /dev/zero | tr '\\0' x; echo; echo end"
    async with atoll.connect(engines.url) as env:
        sandbox = atoll.get_sandbox(env.Sandbox, "box", instance_type="standard")
        processes = []
        for _ in range(6):  # one after the other: the order of their ends is what counts
            processes.append(await sandbox.start_process(text))
            await processes[-1].wait_for_exit(120)
        logs = next((engines.state_dir / "logs").iterdir())

        def used() -> int:
            return sum(path.stat().st_blocks * 512 for path in logs.iterdir())

        deadline = time.monotonic() + 60
        while used() > 256 << 20:
            assert time.monotonic() < deadline
            time.sleep(0.5)
        newest = (await processes[-1].get_logs()).stdout_bytes
        assert (len(newest), newest[-4:]) == (62_000_005, b"end\n")
        async with processes[0].stream_logs() as stream:
            events = [event async for event in stream]
        gap = events[1]
        assert isinstance(gap, atoll.Gap)
        kept = sum(len(event.data) for event in events if isinstance(event, atoll.Stdout))
        assert gap.to_offset + kept == 62_000_005


async def test_output_that_finds_no_space_is_a_gap_and_what_comes_later_is_kept(
    engines: Engines,
) -> None:
    """The logs are on a full file system of their own; space comes back while the process prints."""
    logs = engines.state_dir / "logs"
    logs.mkdir(mode=0o700, exist_ok=True)
    linux.mount("tmpfs", logs, "tmpfs", data="size=3m")
    try:
        (logs / "ballast").write_bytes(bytes(2 << 20))
        async with atoll.connect(engines.url) as env:
            sandbox = atoll.get_sandbox(env.Sandbox, "box")
            process = await sandbox.start_process(
                "echo first; head -c 1500000 /dev/zero | tr '\\0' x; echo; echo lost; "
                "until [ -e go ]; do sleep 0.05; done; echo kept; exit 5"
            )
            await process.wait_for_log("first", timeout=20)
            await sandbox.exec(["sleep", "1"])
            (logs / "ballast").unlink()
            await sandbox.write_file("go", "")
            assert await process.wait_for_exit(20) == 5
            async with process.stream_logs() as stream:
                events = [event async for event in stream]
            at = 0
            for event in events[1:]:
                assert event.offset == at, "no hole without a gap"
                if isinstance(event, atoll.Gap):
                    assert "No space left" in event.reason
                    at = event.to_offset
                elif isinstance(event, atoll.Stdout):
                    at += len(event.data)
            last, end = events[-2:]
            assert isinstance(last, atoll.Stdout)
            assert last.data == b"kept\n"
            assert isinstance(end, atoll.Exited)
            assert any(isinstance(event, atoll.Gap) for event in events)
            await sandbox.destroy()
    finally:
        linux.umount(logs)
