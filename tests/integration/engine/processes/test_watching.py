"""Ends of processes that no engine saw, learnt by the next one."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import atoll
from atoll.wire.agent import REPLAY_WINDOW
from integration.engine.printing import survive
from integration.server.engines import EngineProcess, eventually


class Engines:
    """Engines on one state directory, one after the other."""

    def __init__(self, state_dir: Path, level: str) -> None:
        self.state_dir, self._level = state_dir, level
        self.now = EngineProcess(state_dir, level=level)
        self.url = f"unix://{self.now.hello['socket']}"

    def kill(self) -> None:
        self.now.end(signal.SIGKILL)

    def start(self) -> None:
        self.now = EngineProcess(self.state_dir, level=self._level)
        assert "error" not in self.now.hello

    def replace(self, away: float = 0.0) -> None:
        self.kill()
        time.sleep(away)
        self.start()


@pytest.fixture(params=["fake", "fake-tcp"])
def engines(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Engines]:
    """Agents that write logs themselves, and agents whose output the engine writes down."""
    found = Engines(tmp_path / "state", request.param)
    yield found
    if found.now.process.poll() is not None:
        found.start()
    with found.now.client() as client:
        for info in client.get("/v2/namespaces/Sandbox/sandboxes").json()["sandboxes"]:
            client.delete(f"/v2/namespaces/Sandbox/sandboxes/{info['id']}")
    found.now.end()


async def test_twenty_processes_lose_and_repeat_nothing_when_the_engine_is_killed(
    engines: Engines,
) -> None:
    await survive(engines.url, "box", engines.replace)


async def test_ends_while_no_engine_runs_are_learnt_from_the_agent(engines: Engines) -> None:
    async with atoll.connect(engines.url) as env:
        sandbox = atoll.get_sandbox(env.Sandbox, "box")
        await sandbox.start_process("sleep 0.3; echo done; exit 5", process_id="code")
        await sandbox.start_process("sleep 0.3; kill -KILL $$", process_id="signal")
        engines.replace(away=0.6)
        codes = [await process.wait_for_exit(10) for process in await sandbox.list_processes()]
        assert codes == [5, 137]
        signalled = await sandbox.get_process("signal")
        assert signalled is not None
        assert (signalled.status, signalled.signal, signalled.reason) == ("failed", "SIGKILL", None)
        ended = await sandbox.get_process("code")
        assert ended is not None
        assert ended.end_time is not None
        assert (ended.end_time - ended.start_time).total_seconds() == pytest.approx(0.3, abs=0.2)


@pytest.mark.parametrize("engines", ["fake"], indirect=True)
async def test_an_end_is_learnt_from_the_log_when_the_agent_is_gone_too(engines: Engines) -> None:
    async with atoll.connect(engines.url) as env:
        sandbox = atoll.get_sandbox(env.Sandbox, "box")
        ended = await sandbox.start_process("sleep 0.3; echo last; exit 6")
        cut = await sandbox.start_process("echo begin; sleep 600")
        told = await sandbox.start_process("sleep 600")
        assert cut.pid
        supervisor = _parent(cut.pid)
        agent = _parent(supervisor)
        engines.kill()
        time.sleep(0.6)
        for pid in (supervisor, cut.pid, agent):
            os.kill(pid, signal.SIGKILL)
        engines.start()
        assert await ended.wait_for_exit(10) == 6
        with pytest.raises(atoll.ProcessError, match="its sandbox ended"):
            await cut.wait_for_exit(10)
        assert (cut.status, cut.exit_code, cut.reason) == ("killed", None, "its sandbox ended")
        assert await told.wait_for_exit(10) == 143
        assert (told.status, told.reason) == ("killed", "its sandbox ended")
        assert (await ended.get_logs()).stdout == "last\n"
        assert (await cut.get_logs()).stdout == "begin\n"


@pytest.mark.parametrize("engines", ["fake-tcp"], indirect=True)
async def test_what_an_agent_no_longer_keeps_when_an_engine_comes_back_is_a_gap(
    engines: Engines,
) -> None:
    printed = REPLAY_WINDOW + (1 << 20)
    async with atoll.connect(engines.url) as env:
        sandbox = atoll.get_sandbox(env.Sandbox, "box")
        script = f"echo begin; read -r _ < go; head -c {printed} /dev/zero; echo end"
        await sandbox.exec("mkfifo go")
        process = await sandbox.start_process(script)
        await process.wait_for_log("begin")
        engines.kill()
        (fifo,) = engines.state_dir.glob("layers/**/go")
        fifo.write_text("\n")
        eventually(lambda: not Path(f"/proc/{process.pid}").exists())
        engines.start()
        assert await process.wait_for_exit(10) == 0
        events = [event async for event in sandbox.stream_process_logs(process.id)]
    told = [type(event).__name__ for event in events]
    assert told[:3] == ["Started", "Stdout", "Gap"]
    gap = next(event for event in events if isinstance(event, atoll.Gap))
    kept = b"".join(event.data for event in events if isinstance(event, atoll.Stdout))
    assert len(kept) + gap.to_offset - gap.from_offset == len("begin\n") + printed + len("end\n")
    assert kept.endswith(b"\0end\n")


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_a_start_that_is_sent_again_to_the_next_engine_runs_once(engines: Engines) -> None:
    path = "/v2/namespaces/Sandbox/sandboxes/box/processes"
    body, key = {"command": "echo once >> runs"}, {"idempotency-key": "k1"}
    with engines.now.client() as client:
        first = client.post(path, json=body, headers=key).json()
    engines.replace()
    with engines.now.client() as client:
        again = client.post(path, json=body, headers=key).json()
        other = client.post(path, json={"command": "true"}, headers=key)
    assert again["handle"] == first["handle"]
    assert other.json()["code"] == "IDEMPOTENCY_CONFLICT"
    async with atoll.connect(engines.url) as env:
        assert (await atoll.get_sandbox(env.Sandbox, "box").exec("cat runs")).stdout == "once\n"
