"""Cases L: sleep and wake, destroy, limits. L08 and L10 are with storage, L14 with git."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta

import pytest

import atoll
from atoll.errors import NotSupportedByRuntimeError, SandboxError, SandboxNotFoundError
from conformance.clients import Client


@pytest.fixture
async def env(url: str) -> AsyncIterator[atoll.Environment]:
    async with atoll.connect(url) as found:
        yield found


async def state(sandbox: atoll.Sandbox) -> str:
    return str((await sandbox.info()).state)


async def reached(sandbox: atoll.Sandbox, wanted: str, seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while await state(sandbox) != wanted:
            await asyncio.sleep(0.05)


async def test_l01_work_holds_off_sleep_and_idleness_brings_it(sandbox: atoll.Sandbox) -> None:
    """Twice `sleep_after` is allowed, plus what a busy machine takes."""
    await sandbox.set_sleep_after(timedelta(seconds=0.5))
    assert (await sandbox.exec("sleep 1.5; echo done")).stdout == "done\n"
    async for event in sandbox.exec_stream("for i in 1 2 3; do sleep 0.6; echo $i; done"):
        if isinstance(event, atoll.Stdout):
            assert await state(sandbox) == "running"
    began = time.monotonic()
    await reached(sandbox, "stopped")
    assert time.monotonic() - began < 20
    told = [event async for event in sandbox.events()]
    assert (told[-1].type, told[-1].reason) == ("stopped", "idle")


@pytest.mark.container
async def test_l01_what_never_sleeps_and_what_is_renewed_stay_awake(
    sandbox: atoll.Sandbox,
) -> None:
    await sandbox.exec(["true"])
    await sandbox.set_sleep_after(1)
    for _ in range(6):
        await sandbox.renew_activity_timeout()
        await asyncio.sleep(0.4)
    assert await state(sandbox) == "running"
    await sandbox.set_keep_alive(True)
    await asyncio.sleep(2)
    assert await state(sandbox) == "running"
    await sandbox.set_keep_alive(False)
    await reached(sandbox, "stopped")


@pytest.mark.clients("sync")
async def test_l02_files_survive_three_rounds_of_sleep(
    box: Client, sandbox_id: str, env: atoll.Environment
) -> None:
    sandbox = atoll.get_sandbox(env.Sandbox, sandbox_id)
    content = b""
    for number in range(3):
        content += hashlib.sha256(str(number).encode()).digest() * 50_000
        await box.write("/workspace/file", content)
        await box.exec(f"echo {number} >> log")
        await sandbox.sleep()
        assert await state(sandbox) == "stopped"
        told = (await box.exec(["sha256sum", "/workspace/file"])).text.split()[0]
        assert told == hashlib.sha256(content).hexdigest()
    assert (await box.exec(["cat", "log"])).text == "0\n1\n2\n"


@pytest.mark.beyond_pods('`sleep_mode="freeze"`')
async def test_l02_a_process_is_kept_by_freezing_and_started_again_after_a_stop(
    env: atoll.Environment, sandbox_id: str
) -> None:
    sandbox = atoll.get_sandbox(env.Sandbox, sandbox_id, sleep_mode="freeze")
    try:
        kept = await sandbox.start_process("sleep 600", process_id="kept", restart=True)
        lost = await sandbox.start_process("sleep 600", process_id="lost")
        assert (await sandbox.sleep()).state == "frozen"
        assert await kept.get_status() == "running"
        assert await state(sandbox) == "frozen"
        await sandbox.exec(["true"])
        assert await kept.get_status() == "running"
        await sandbox.stop()
        assert await lost.get_status() == "killed"
        await sandbox.wake()
        again = await sandbox.get_process("kept")
        assert again
        assert again.status in {"starting", "running"}
        assert await lost.get_status() == "killed"
    finally:
        await sandbox.destroy()


async def test_l03_a_stop_tells_processes_by_the_signal_that_is_wanted(
    sandbox: atoll.Sandbox,
) -> None:
    script = "trap 'echo told > told; exit' INT; echo ready; while :; do sleep 0.1; done"
    process = await sandbox.start_process(["bash", "-c", script])
    await process.wait_for_log("ready", timeout=30)
    await sandbox.stop("INT")
    assert (await sandbox.exec(["cat", "told"])).stdout == "told\n"
    with pytest.raises(SandboxError, match="no signal"):
        await sandbox.stop("NOPE")


async def test_l03_destroy_is_idempotent_at_any_moment(sandbox: atoll.Sandbox) -> None:
    await asyncio.gather(sandbox.destroy(), sandbox.destroy())
    starting = asyncio.create_task(sandbox.start())
    await asyncio.sleep(0.02)
    await sandbox.destroy()
    with suppress(SandboxError):  # it was destroyed during its start, or before
        await starting
    await sandbox.destroy()

    stream = sandbox.exec_stream("echo begun; sleep 600", timeout=None)
    while not isinstance(await anext(stream), atoll.Stdout):
        pass
    await asyncio.gather(sandbox.destroy(), sandbox.destroy())
    async with asyncio.timeout(20):
        last = [event async for event in stream][-1]
    assert isinstance(last, atoll.Failed)
    assert last.error["code"] == "SANDBOX_DESTROYED"
    with pytest.raises(SandboxNotFoundError):
        await sandbox.info()
    assert (await sandbox.exec(["ls"])).stdout == ""


async def test_l04_a_create_that_is_repeated_makes_one_sandbox(
    env: atoll.Environment, sandbox_id: str
) -> None:
    handles = [atoll.get_sandbox(env.Sandbox, sandbox_id, labels={"case": "l04"}) for _ in range(5)]
    infos = await asyncio.gather(*(handle.start() for handle in handles))
    assert {(info.generation, info.placement_id) for info in infos} == {(1, infos[0].placement_id)}
    page = await env.Sandbox.list(labels={"case": "l04"})
    assert [info.id for info in page] == [sandbox_id]
    await handles[0].destroy()


async def test_l06_reading_wakes_nothing(sandbox: atoll.Sandbox, env: atoll.Environment) -> None:
    process = await sandbox.start_process("echo kept", process_id="p")
    await process.wait_for_exit(30)
    await sandbox.exec("cd /tmp")
    await sandbox.sleep()
    generation = (await sandbox.info()).generation
    found = await sandbox.get_process("p")
    assert found
    assert found.status == "completed"
    assert (await sandbox.get_process_logs("p")).stdout == "kept\n"
    assert len(await sandbox.list_processes()) == 1
    assert [session.cwd for session in await sandbox.list_sessions()] == ["/tmp"]
    assert (await sandbox.get_state()).status == "stopped"
    assert (await sandbox.metrics()).memory == 0
    assert await sandbox.get_container_placement_id() is None
    assert sandbox.id in {info.id for info in await env.Sandbox.list(state="stopped", limit=1_000)}
    await sandbox.renew_activity_timeout()
    info = await sandbox.info()
    assert (str(info.state), info.generation) == ("stopped", generation)


async def test_a_sleep_that_keeps_processes_on_disk_is_refused(
    env: atoll.Environment, sandbox_id: str
) -> None:
    sandbox = atoll.get_sandbox(env.Sandbox, sandbox_id, sleep_mode="checkpoint")
    with pytest.raises(NotSupportedByRuntimeError):
        await sandbox.exec("true")


@pytest.mark.beyond_bwrap("memory")
@pytest.mark.beyond_gvisor("out of memory")
@pytest.mark.container
@pytest.mark.clients("sync", "http")
async def test_l11_out_of_memory_is_told_and_the_next_command_runs(box: Client) -> None:
    at_once = await box.exec(["python3", "-c", "x = bytearray(10**11)"])
    assert at_once.code != 0
    slowly = "x = []\nwhile True: x.append(bytearray(1 << 20))"
    filled = await box.exec(["python3", "-c", slowly])
    assert filled.signal == "SIGKILL" or filled.code == 137
    assert (await box.exec(["echo", "on"])).text == "on\n"


@pytest.mark.beyond_bwrap("memory")
@pytest.mark.beyond_gvisor("out of memory")
@pytest.mark.beyond_pods("`oom_killed`, `pids_limited`")
@pytest.mark.container
async def test_l11_the_result_says_that_memory_was_the_reason(sandbox: atoll.Sandbox) -> None:
    slowly = "x = []\nwhile True: x.append(bytearray(1 << 20))"
    assert (await sandbox.exec(["python3", "-c", slowly])).oom_killed
    assert not (await sandbox.exec(["false"])).oom_killed


@pytest.mark.beyond_bwrap("processes")
@pytest.mark.beyond_gvisor("processes")
@pytest.mark.beyond_pods("`oom_killed`, `pids_limited`")
@pytest.mark.container
async def test_l12_the_result_says_that_the_limit_of_processes_was_hit(
    sandbox: atoll.Sandbox,
) -> None:
    assert not (await sandbox.exec(["true"])).pids_limited
    limit = (await sandbox.info()).limits.pids
    many = f"for i in $(seq {limit + 1}); do sleep 30 & done"
    assert (await sandbox.exec(["bash", "-c", many])).pids_limited


@pytest.mark.beyond_pods("`metrics()`")
@pytest.mark.container
async def test_what_a_sandbox_uses_is_measured(sandbox: atoll.Sandbox) -> None:
    await sandbox.start_process("sleep 600")
    assert (await sandbox.metrics()).pids > 0


ATTACKS = {
    "fork bomb": "f() { f | f & }; f; sleep 600",
    "busy loops": "for i in $(seq 64); do while :; do :; done & done; wait",
    "full disk": "cat /dev/zero > /workspace/big; sleep 600",
    "a million files": "mkdir -p /workspace/m; cd /workspace/m; "
    "for i in $(seq 1000000); do : > $i || break; done; sleep 600",
}


@pytest.mark.container
@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(
            "fork bomb",
            marks=[
                pytest.mark.beyond_gvisor("processes"),
                pytest.mark.beyond_pods("limit of processes"),
            ],
        ),
        pytest.param("busy loops", marks=pytest.mark.slow),
        pytest.param(
            "full disk", marks=[pytest.mark.slow, pytest.mark.beyond_pods("limit of disk")]
        ),
        pytest.param("a million files", marks=pytest.mark.slow),
    ],
)
async def test_l12_a_sandbox_under_attack_answers_and_can_be_destroyed(
    env: atoll.Environment, sandbox_id: str, attack: str, level: str
) -> None:
    """Ten times the second that an idle machine may take."""
    size = {"vcpu": 0.5, "memory_mib": 256, "disk_mb": 100}
    sandbox = atoll.get_sandbox(env.Sandbox, sandbox_id, instance_type=size)
    await sandbox.start_process(ATTACKS[attack], process_id="attack")
    try:
        for _ in range(3):
            await asyncio.sleep(0.5)
            async with asyncio.timeout(10):
                assert len(await sandbox.list_sessions()) >= 0
                if level != "kubernetes":  # see its "metrics()"
                    assert (await sandbox.metrics()).pids > 0
    finally:
        async with asyncio.timeout(30):
            await sandbox.destroy()
    with pytest.raises(SandboxNotFoundError):
        await atoll.get_sandbox(env.Sandbox, sandbox_id).info()
