"""Cases S of background processes: start, logs, waits, kill, sessions, sleep."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator

import httpx2
import pytest

import atoll
import atoll.sync
from conformance.clients import gather

STUBBORN = "bash -c 'trap \"\" TERM; echo up; sleep 99999 & sleep 99999'"


async def count(sandbox: atoll.Sandbox, text: str) -> int:
    """Return how many processes have *text* (written ``[x]yz``) in their command line."""
    return int((await sandbox.exec(["sh", "-c", f"pgrep -fc '{text}' || true"])).stdout)


@pytest.fixture
async def http(url: str, sandbox_id: str) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.AsyncHTTPTransport(uds=url.removeprefix("unix://"))
    base = f"http://engine/v2/namespaces/Sandbox/sandboxes/{sandbox_id}"
    async with httpx2.AsyncClient(transport=transport, base_url=base, timeout=60) as client:
        yield client


async def test_s08_the_log_of_a_short_process_is_there_at_once(sandbox: atoll.Sandbox) -> None:
    process = await sandbox.start_process("echo hi")
    logs = await sandbox.get_process_logs(process.id)
    assert (logs.stdout, logs.stderr, logs.process_id) == ("hi\n", "", process.id)
    assert await process.get_status() == "completed"
    assert process.exit_code == 0
    assert process.end_time
    assert process.end_time >= process.start_time


async def test_s08_by_the_blocking_sdk(url: str, sandbox: atoll.Sandbox) -> None:
    def run() -> tuple[str, int, list[object]]:
        with atoll.sync.connect(url) as env:
            box = atoll.sync.get_sandbox(env.Sandbox, sandbox.id)
            seen: list[object] = []
            process = box.start_process("echo hi; exit 3", on_exit=seen.append)
            code = process.wait_for_exit(10)
            found = process.wait_for_log(re.compile("h(.)"))
            for _ in range(500):
                if seen:
                    break
                time.sleep(0.01)
            assert found.match
            return process.get_logs().stdout + found.match[1], code, seen

    assert await asyncio.to_thread(run) == ("hi\ni", 3, [3])


async def test_s08_by_http(http: httpx2.AsyncClient, sandbox: atoll.Sandbox) -> None:
    started = (
        await http.post("/processes", json={"command": "echo hi; printf '\\377' >&2"})
    ).json()
    one = f"/processes/{started['id']}"
    assert (await http.get(one, params={"wait": 10_000})).json()["status"] == "completed"
    logs = (await http.get(f"{one}/logs")).json()
    assert (logs["stdout"], logs["stderrBase64"]) == ("hi\n", "/w==")
    answer = await http.get(f"{one}/logs/stream", headers={"accept": "text/event-stream"})
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line[:5] == "data:"]
    assert [event["type"] for event in events] == ["stdout", "stderr", "exit"]
    assert {event["processId"] for event in events} == {started["id"]}
    assert events[-1]["exitCode"] == 0
    assert (await http.get("/processes/none")).json()["code"] == "PROCESS_NOT_FOUND"


async def test_s09_a_failed_start_is_failed_and_never_running(sandbox: atoll.Sandbox) -> None:
    process = await sandbox.start_process("no-such-cmd")
    assert await process.wait_for_exit(10) == 127
    assert process.status == "failed"
    assert "no-such-cmd" in (await process.get_logs()).stderr


async def test_s09_an_argv_that_cannot_run_is_an_error_and_a_failed_record(
    sandbox: atoll.Sandbox,
) -> None:
    seen: list[atoll.SandboxError] = []
    with pytest.raises(atoll.CommandNotFoundError):
        await sandbox.start_process(["no-such-cmd"], process_id="x", on_error=seen.append)
    process = await sandbox.get_process("x")
    assert process is not None
    assert (process.status, process.pid, process.exit_code) == ("failed", None, None)
    assert "no-such-cmd" in (process.reason or "")
    assert len(seen) == 1


async def test_s10_kill_ends_the_whole_tree_and_twice_is_no_mistake(sandbox: atoll.Sandbox) -> None:
    process = await sandbox.start_process(STUBBORN)
    await process.wait_for_log("up", 10)
    assert await count(sandbox, "^sleep [9]9999") == 2
    start = time.monotonic()
    await process.kill()
    assert 4.5 < time.monotonic() - start < 15
    assert await count(sandbox, "^sleep [9]9999") == 0
    assert (process.status, process.signal, process.reason) == ("killed", "SIGKILL", "kill")
    start = time.monotonic()
    await process.kill()
    await sandbox.kill_process(process.id)
    assert time.monotonic() - start < 2


async def test_s10_one_that_exited_keeps_its_code(sandbox: atoll.Sandbox) -> None:
    process = await sandbox.start_process("exit 3")
    assert await process.wait_for_exit(10) == 3
    await process.kill()
    assert (process.status, process.exit_code, process.reason) == ("failed", 3, None)


@pytest.mark.beyond_gvisor("daemons")
async def test_s10_a_tree_that_hides_from_its_parent_is_killed_too(sandbox: atoll.Sandbox) -> None:
    process = await sandbox.start_process("setsid -f sleep 88888; (sleep 88888 &); sleep 88888")
    while await count(sandbox, "^sleep [8]8888") < 3:
        await asyncio.sleep(0.02)
    await process.kill("SIGKILL")
    assert await count(sandbox, "^sleep [8]8888") == 0


async def test_s13_a_stream_goes_on_from_any_offset(sandbox: atoll.Sandbox) -> None:
    text = "for i in $(seq 50); do echo out $i; echo err $i >&2; sleep 0.02; done"
    process = await sandbox.start_process(text)
    first = sandbox.stream_process_logs(process.id)
    async with first:
        while first.offset < 200:
            await anext(first)
    events = await gather(sandbox.stream_process_logs(process.id, from_offset=first.offset))
    pieces = [event for event in events if isinstance(event, atoll.Stdout | atoll.Stderr)]
    assert pieces[0].offset == first.offset
    assert isinstance(events[-1], atoll.Exited)
    whole = await gather(sandbox.stream_process_logs(process.id))
    data = b"".join(e.data for e in whole if isinstance(e, atoll.Stdout | atoll.Stderr))
    assert data[first.offset :] == b"".join(piece.data for piece in pieces)
    lines = [line.split() for line in data.decode().splitlines()]
    assert sorted(lines) == sorted([s, str(i)] for s in ("out", "err") for i in range(1, 51))


async def test_s13_logs_are_there_after_exit_while_asleep_and_after_a_wake(
    sandbox: atoll.Sandbox,
) -> None:
    ended = await sandbox.start_process("echo before; exit 2", process_id="ended")
    await ended.wait_for_exit(10)
    cut = await sandbox.start_process("echo begin; sleep 600", process_id="cut")
    await cut.wait_for_log("begin", 10)
    await sandbox.stop()
    for _ in range(2):
        assert (await sandbox.get_process_logs("ended")).stdout == "before\n"
        assert (await sandbox.get_process_logs("cut")).stdout == "begin\n"
        assert {p.id: (p.status, p.reason) for p in await sandbox.list_processes()} == {
            "ended": ("failed", None),
            "cut": ("killed", "sleep"),
        }
        with pytest.raises(atoll.ProcessExitedBeforeReadyError):
            await cut.wait_for_port(1234, timeout=5)
        last = (await gather(sandbox.stream_process_logs("cut")))[-1]
        assert isinstance(last, atoll.Exited)
        if (await sandbox.get_state()).status == "stopped":
            await sandbox.start()
    assert (await sandbox.get_state()).status == "healthy"


async def test_s14_processes_of_a_session_end_with_it_and_others_do_not(
    sandbox: atoll.Sandbox,
) -> None:
    session = await sandbox.create_session(id="s", env={"A": "1"}, cwd="/tmp")
    await session.exec("export B=2")
    own = await session.start_process("echo $PWD $A $B; sleep 77777")
    other = await sandbox.start_process("echo ${A-none}; sleep 77777")
    assert (await own.wait_for_log("/tmp", 10)).line == "/tmp 1 2"
    assert (own.session_id, other.session_id) == ("s", None)
    assert (await session.exec("echo free")).stdout == "free\n"
    await session.delete()
    assert await own.wait_for_exit(10) in {137, 143}
    assert (own.status, own.reason) == ("killed", "session")
    assert await other.get_status() == "running"
    assert (await other.get_logs()).stdout == "none\n"
    await other.kill("SIGKILL")


async def test_an_id_names_one_process_at_a_time(sandbox: atoll.Sandbox) -> None:
    first = await sandbox.start_process("echo one; sleep 600", process_id="srv")
    with pytest.raises(atoll.ProcessAlreadyExistsError):
        await sandbox.start_process("echo two", process_id="srv")
    await first.kill("SIGKILL")
    second = await sandbox.start_process("echo two; sleep 600", process_id="srv")
    for call in (first.kill, first.get_status, first.get_logs, first.wait_for_exit):
        with pytest.raises(atoll.StaleHandleError):
            await call()
    assert await second.get_status() == "running"
    await second.wait_for_log("two", 10)
    await second.kill("SIGKILL")


async def test_a_process_with_restart_is_started_again_on_wake(sandbox: atoll.Sandbox) -> None:
    again = await sandbox.start_process("echo up >> runs; sleep 600", process_id="a", restart=True)
    await sandbox.start_process("sleep 600", process_id="b")
    killed = await sandbox.start_process("sleep 600", process_id="c", restart=True)
    await killed.kill("SIGKILL")
    await sandbox.exec(["sh", "-c", "until [ -s runs ]; do sleep 0.01; done"])
    await sandbox.stop()
    await sandbox.start()
    now = {process.id: process.status for process in await sandbox.list_processes()}
    assert now == {"a": "running", "b": "killed", "c": "killed"}
    await sandbox.exec(["sh", "-c", "until [ $(wc -l < runs) = 2 ]; do sleep 0.01; done"])
    with pytest.raises(atoll.StaleHandleError):
        await again.get_status()


async def test_looking_at_processes_of_a_sleeping_sandbox_does_not_wake_it(
    sandbox: atoll.Sandbox,
) -> None:
    await sandbox.start_process("sleep 600", process_id="p")
    await sandbox.stop()
    process = await sandbox.get_process("p")
    assert process is not None
    assert process.status == "killed"
    assert await sandbox.get_process("none") is None
    assert len(await sandbox.list_processes()) == 1
    await process.kill()
    assert await sandbox.kill_all_processes() == 0
    assert await sandbox.cleanup_completed_processes() == 1
    assert await sandbox.list_processes() == []
    assert (await sandbox.get_state()).status == "stopped"


@pytest.mark.parametrize("awake", [True, False])
async def test_l01_a_process_alone_holds_off_sleep_only_when_asked(
    url: str, sandbox_id: str, awake: bool, sandbox: atoll.Sandbox
) -> None:
    async with atoll.connect(url) as env:
        box = atoll.get_sandbox(env.Sandbox, sandbox_id, sleep_after=1)
        process = await box.start_process("sleep 600", keep_awake=awake)
        await asyncio.sleep(4)
        assert await process.get_status() == ("running" if awake else "killed")
        assert (await box.get_state()).status == ("healthy" if awake else "stopped")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_wait_for_port_finds_servers_on_both_loopback_addresses(
    sandbox: atoll.Sandbox, address: str
) -> None:
    text = f"sleep 0.3; exec python3 -m http.server --bind {address} 18311"
    process = await sandbox.start_process(text)
    await process.wait_for_port(18311, timeout=30)
    await process.wait_for_port(18311, mode="tcp", timeout=5)
    await process.wait_for_port(18311, path="/none", status=404, timeout=5)
    with pytest.raises(atoll.ProcessReadyTimeoutError):
        await process.wait_for_port(18311, path="/none", timeout=0.3, interval=0.1)
    await process.kill("SIGKILL")


async def test_wait_for_port_ends_at_once_when_the_process_ends(sandbox: atoll.Sandbox) -> None:
    process = await sandbox.start_process("sleep 0.5; echo no luck >&2; exit 9")
    start = time.monotonic()
    with pytest.raises(atoll.ProcessExitedBeforeReadyError) as caught:
        await process.wait_for_port(18312, timeout=60, interval=30)
    assert time.monotonic() - start < 5
    assert (caught.value.context["exit_code"], caught.value.context["tail"]) == (9, "no luck")


async def test_wait_for_log_matches_what_was_printed_and_what_is_split(
    sandbox: atoll.Sandbox,
) -> None:
    text = "echo early; printf 'Listening on ' >&2; sleep 0.3; printf '80' >&2; sleep 0.01; "
    process = await sandbox.start_process(text + "echo 80 >&2; printf 'Prompt: '; sleep 600")
    found = await process.wait_for_log(re.compile(r"on (\d+)"), timeout=10)
    assert (found.line, found.match and found.match[1]) == ("Listening on 8080", "8080")
    assert await process.wait_for_log("early") == ("early", None)
    assert (await process.wait_for_log(re.compile("Prompt: $"), timeout=10)).line == "Prompt: "
    with pytest.raises(atoll.ProcessReadyTimeoutError):
        await process.wait_for_log("never", timeout=0.3)
    await process.kill("SIGKILL")
    with pytest.raises(atoll.ProcessExitedBeforeReadyError):
        await process.wait_for_log("never")


async def test_callbacks_tell_of_start_output_and_end(sandbox: atoll.Sandbox) -> None:
    told: list[object] = []
    ended = asyncio.Event()

    def on_exit(code: int | None) -> None:
        told.append(code)
        ended.set()

    process = await sandbox.start_process(
        "echo out; sleep 0.1; echo err >&2; exit 4",
        on_start=lambda started: told.append(started.pid),
        on_output=lambda stream, text: told.append((stream, text)),
        on_exit=on_exit,
    )
    await asyncio.wait_for(ended.wait(), 10)
    assert told == [process.pid, ("stdout", "out\n"), ("stderr", "err\n"), 4]


async def test_t04_variables_of_the_sandbox_reach_processes(sandbox: atoll.Sandbox) -> None:
    await sandbox.set_env_vars({"K": "v"})
    process = await sandbox.start_process("echo $K$L", env={"L": "l\nm"})
    await process.wait_for_exit(10)
    assert (await process.get_logs()).stdout == "vl m\n"


async def test_a_timeout_kills_the_tree_and_says_so(sandbox: atoll.Sandbox) -> None:
    process = await sandbox.start_process("echo a; sleep 600", timeout="500ms")
    assert await process.wait_for_exit(10) == 143
    assert (process.status, process.reason) == ("killed", "timeout")


async def test_a_destroyed_sandbox_has_no_processes(sandbox: atoll.Sandbox) -> None:
    await sandbox.start_process("sleep 600", process_id="p")
    await sandbox.destroy()
    assert await sandbox.list_processes() == []
    assert await sandbox.get_process("p") is None


async def test_the_log_is_a_ring_with_a_gap_in_front(sandbox: atoll.Sandbox) -> None:
    text = "head -c 80000000 /dev/zero | tr '\\0' x; echo; echo end"
    process = await sandbox.start_process(text)
    await process.wait_for_exit(60)
    events = await gather(process.stream_logs())
    gap = events[1]
    assert isinstance(gap, atoll.Gap)
    assert gap.from_offset == 0
    kept = sum(len(event.data) for event in events if isinstance(event, atoll.Stdout))
    assert gap.to_offset + kept == 80_000_005
    assert 58 << 20 < kept <= 64 << 20, "up to 1/15 is lost to the ends of segments"
    assert isinstance(events[-2], atoll.Stdout)
    assert events[-2].data.endswith(b"end\n")


@pytest.mark.beyond_pods('`sleep_mode="freeze"`')
async def test_a_frozen_sandbox_keeps_its_processes_and_looking_at_them_does_not_thaw(
    url: str, sandbox_id: str, sandbox: atoll.Sandbox
) -> None:
    async with atoll.connect(url) as env:
        box = atoll.get_sandbox(env.Sandbox, sandbox_id, sleep_mode="freeze", sleep_after=1)
        process = await box.start_process("echo up; while sleep 0.1; do echo tick; done")
        await process.wait_for_log("tick", 10)
        for _ in range(200):
            if (await box.get_state()).status == "frozen":
                break
            await asyncio.sleep(0.05)
        before = (await process.get_logs()).stdout
        await asyncio.sleep(0.5)
        assert await process.get_status() == "running"
        assert (await box.get_process_logs(process.id)).stdout == before
        assert len(await box.list_processes()) == 1
        assert (await box.get_state()).status == "frozen"
        start = time.monotonic()
        await process.kill("SIGKILL")
        assert time.monotonic() - start < 5
        assert (process.status, process.reason) == ("killed", "kill")
