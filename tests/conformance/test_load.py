"""Many commands, streams and sessions, and much output: nothing starves, grows or stays behind."""

import asyncio
import hashlib
import random
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

import atoll
from atoll.errors import SandboxError
from conformance import remains

pytestmark = [pytest.mark.slow, pytest.mark.container, pytest.mark.timeout(3600)]

COMMANDS = 10_000
AT_ONCE = 8
LEFT = (
    "ls -A /tmp /workspace | wc -l; cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '; "
    "ls -d /proc/[0-9]* | wc -l"
)
"""Counts files, zombies and processes."""

KEPT = 400
"""Descriptors an agent may have: large output is kept for a minute, 64 MiB of it at most."""

GB = 10**9
MIB = 1 << 10
"""In KiB, as the kernel counts resident memory."""


@pytest.fixture
def isolates(level: str) -> bool:
    """Whether sessions can be isolated: "isolated sessions" of what Pods differ in."""
    return level != "kubernetes"


@asynccontextmanager
async def large(url: str, id: str) -> AsyncIterator[atoll.Sandbox]:
    """Make a sandbox with room for hundreds of processes."""
    async with atoll.connect(url) as env:
        sandbox = atoll.get_sandbox(env.Sandbox, id, instance_type="standard-4")
        yield sandbox
        await sandbox.destroy()


async def _digest(sandbox: atoll.Sandbox, size: int) -> str:
    digest = hashlib.sha256()
    command = ["head", "-c", str(size), "/dev/zero"]
    async for event in sandbox.exec_stream(command, timeout=None):
        if isinstance(event, atoll.Stdout):
            digest.update(event.data)
    return digest.hexdigest()


def _zeros(size: int) -> str:
    digest, block = hashlib.sha256(), bytes(10**6)
    for _ in range(size // len(block)):
        digest.update(block)
    return digest.hexdigest()


@pytest.mark.beyond_gvisor("memory")
async def test_x16_a_gigabyte_of_output_needs_no_memory(
    url: str, sandbox: atoll.Sandbox, level: str
) -> None:
    assert await _digest(sandbox, 50 * 10**6) == _zeros(50 * 10**6)
    peaks = {
        "client": remains.peak_of("self"),
        "engine": remains.peak_of(remains.engine_pid(url)),
    }
    if level != "kubernetes":  # an agent's cgroup is its node's there
        peaks["agent"] = remains.agent_peak(await remains.agents(url))
    before = {name: peak() for name, peak in peaks.items()}
    assert all(before.values())
    assert await _digest(sandbox, GB) == _zeros(GB)
    grown = {name: peak() - before[name] for name, peak in peaks.items()}
    assert all(value < 24 * MIB for value in grown.values()), f"{grown} KiB more"


@pytest.mark.beyond_gvisor("processes")
async def test_two_hundred_streams_do_not_starve_each_other(url: str, sandbox_id: str) -> None:
    """One of them prints as fast as it can all the time."""
    script = "for i in $(seq 20); do echo $i; sleep 0.05; done"
    expected = "".join(f"{n}\n" for n in range(1, 21)).encode()

    async def watch(sandbox: atoll.Sandbox) -> float:
        start, got = time.monotonic(), b""
        async for event in sandbox.exec_stream(["sh", "-c", script], timeout=None):
            if isinstance(event, atoll.Stdout):
                got += event.data
        assert got == expected
        return time.monotonic() - start

    async with large(url, sandbox_id) as sandbox:
        async with await sandbox.spawn(["yes"], stdin=None) as flood:
            reading = asyncio.create_task(_drained(flood.stdout))
            took = await asyncio.gather(*(watch(sandbox) for _ in range(199)))
            await flood.kill()
            await reading
        assert max(took) <= 10 * statistics.median(took)


async def _drained(output: AsyncIterator[bytes]) -> None:
    async for _ in output:
        pass


@pytest.mark.beyond_gvisor("isolated sessions")
async def test_a_hundred_sessions_work_and_leave_nothing(
    url: str, sandbox_id: str, *, isolates: bool
) -> None:
    """Each second one is isolated, where sessions can be."""
    async with large(url, sandbox_id) as sandbox:
        await sandbox.exec("true")
        sessions = await asyncio.gather(
            *(
                sandbox.create_session(id=f"s{n}", isolation=isolates and n % 2 == 1)
                for n in range(100)
            )
        )
        for step in ("mine=$((mine + 1)); cd /usr", "sleep 1000 & mine=$((mine + 1))"):
            await asyncio.gather(*(session.exec(step, timeout=300) for session in sessions))
        told = await asyncio.gather(
            *(session.exec("echo $mine $PWD; pgrep -cx sleep") for session in sessions)
        )
        assert {result.stdout for result in told[1::2]} == {
            "2 /usr\n1\n" if isolates else "2 /usr\n100\n"
        }
        assert {result.stdout for result in told[::2]} == {"2 /usr\n100\n"}
        await asyncio.gather(*(sandbox.delete_session(session.id) for session in sessions))
        left = await sandbox.exec(["sh", "-c", "pgrep -cx sleep"])
        assert left.stdout == "0\n"


@pytest.mark.beyond_gvisor("isolated sessions")
async def test_thousands_of_mixed_commands_leave_nothing_behind(
    url: str, sandbox_id: str, level: str, *, isolates: bool
) -> None:
    held = _held_by_pod if level == "kubernetes" else _held
    async with large(url, sandbox_id) as sandbox:
        sessions = [
            await sandbox.create_session(id=f"s{n}", isolation=isolates and n == 0)
            for n in range(3)
        ]
        await _mixed(sandbox, sessions, random.Random(0), 50)
        before = await held(url, sandbox)
        share = COMMANDS // AT_ONCE
        await asyncio.gather(
            *(_mixed(sandbox, sessions, random.Random(seed), share) for seed in range(AT_ONCE))
        )
        await asyncio.sleep(3)  # supervisors that wait too many leave after 2 s
        after = await held(url, sandbox)
        assert {name: count for name, count in after.items() if count > before[name]} == {}


async def _held(url: str, sandbox: atoll.Sandbox) -> dict[str, int]:
    """Return what may not grow: descriptors, processes, zombies, files."""
    files, zombies, _ = (await sandbox.exec(["sh", "-c", LEFT])).stdout.split()
    agent = max(await remains.agents(url), key=lambda one: one.born())
    agents = agent.processes()
    return {
        "descriptors of the engine": max(remains.descriptors(remains.engine_pid(url)), 200),
        "descriptors of the agent": max(remains.descriptors(min(agents)), KEPT),
        "processes of the agent": max(len(agents), 8),
        "processes of commands": len(agent.commands()),
        "zombies": int(zombies),
        "files": int(files),
    }


async def _held_by_pod(url: str, sandbox: atoll.Sandbox) -> dict[str, int]:
    """Return the same of a Pod, which is seen from inside: its node may be any machine."""
    files, zombies, processes = (await sandbox.exec(["sh", "-c", LEFT])).stdout.split()
    return {
        "descriptors of the engine": max(remains.descriptors(remains.engine_pid(url)), 200),
        "processes": max(int(processes), 20),
        "zombies": int(zombies),
        "files": int(files),
    }


async def _mixed(
    sandbox: atoll.Sandbox, sessions: list[atoll.Session], rng: random.Random, count: int
) -> None:
    steps: list[Callable[[atoll.Sandbox, atoll.Session], Awaitable[None]]] = [
        _plain, _plain, _plain, _code, _state, _input, _large, _orphan, _timeout, _killed, _terminal,
        _background,
    ]  # fmt: skip
    for _ in range(count):
        await rng.choice(steps)(sandbox, rng.choice(sessions))


async def _plain(sandbox: atoll.Sandbox, _: atoll.Session) -> None:
    assert (await sandbox.exec(["echo", "hi"])).stdout == "hi\n"


async def _code(_: atoll.Sandbox, session: atoll.Session) -> None:
    assert (await session.exec("(exit 7)")).exit_code == 7


async def _state(_: atoll.Sandbox, session: atoll.Session) -> None:
    assert (await session.exec("n=$((n + 1)); test $n -gt 0; echo $?")).stdout == "0\n"


async def _input(sandbox: atoll.Sandbox, _: atoll.Session) -> None:
    assert (await sandbox.exec(["cat"], stdin=b"a\0b")).stdout_bytes == b"a\0b"


async def _large(sandbox: atoll.Sandbox, _: atoll.Session) -> None:
    result = await sandbox.exec(["head", "-c", "300000", "/dev/zero"])
    assert len(result.stdout_bytes) == 300_000


async def _orphan(_: atoll.Sandbox, session: atoll.Session) -> None:
    await session.exec("(setsid sleep 0.3 &) ; (sleep 0.2 &)")


async def _timeout(sandbox: atoll.Sandbox, _: atoll.Session) -> None:
    with pytest.raises(atoll.TimeoutError):
        await sandbox.exec(["sh", "-c", "trap '' TERM; sleep 60 & sleep 60"], timeout=0.1)


async def _killed(sandbox: atoll.Sandbox, _: atoll.Session) -> None:
    async with await sandbox.spawn(["sleep", "60"]) as handle:
        await handle.kill()
        assert (await handle.wait()).signal == "SIGKILL"


async def _terminal(_: atoll.Sandbox, session: atoll.Session) -> None:
    async with await session.spawn("tty; exit 3", pty=True) as handle:
        assert (await handle.output()).exit_code == 3


async def _background(_: atoll.Sandbox, session: atoll.Session) -> None:
    process = await session.start_process("sleep 60 & echo up; wait")
    await process.wait_for_log("up")
    await process.kill()
    try:
        await process.wait_for_exit(30)
    except SandboxError as error:  # cleaned up meanwhile
        assert error.code == "PROCESS_NOT_FOUND"
