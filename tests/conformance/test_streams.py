"""Cases S: commands as streams of events, and handles (docs and cases of "execStream")."""

import asyncio
import hashlib
import signal
import time

import pytest

import atoll
from atoll.errors import SandboxError
from conformance.clients import Client, gather

EVERYBODY = pytest.mark.clients("sync", "http")


@EVERYBODY
@pytest.mark.parametrize("lines", [20_000, 50_000])
async def test_s01_every_byte_comes_before_the_exit(box: Client, lines: int) -> None:
    expected = b"".join(b"%d\n" % number for number in range(1, lines + 1))
    for _ in range(5):
        got = await box.stream(f"seq {lines}")
        assert hashlib.sha256(got.stdout).digest() == hashlib.sha256(expected).digest()


@EVERYBODY
@pytest.mark.parametrize(
    ("command", "code", "name", "ended"),
    [
        ("exit 3", 3, None, True),
        ("echo hi; exit 0", 0, None, True),
        ("set -e; false", 1, None, True),
        ("exec python3 -c pass", 0, None, True),
        ("kill -TERM $BASHPID", 143, "SIGTERM", True),
        ("bash -c 'exit 3'", 3, None, False),
    ],
)
async def test_s03_the_exit_event_has_the_right_code(
    box: Client, command: str, code: int, name: str | None, ended: bool
) -> None:
    got = await box.stream(command)
    assert (got.code, got.signal, got.session_ended) == (code, name, ended)


@EVERYBODY
async def test_s04_a_timeout_is_an_event_on_time(box: Client) -> None:
    await box.exec("true")
    start = time.monotonic()
    got = await box.stream("echo a; sleep 5; touch late", timeout=0.5)
    assert 0.4 < time.monotonic() - start < 3
    assert (got.stdout, got.timed_out) == (b"a\n", True)
    assert (await box.exec("pgrep -f 'sleep [5]' || echo none")).text == "none\n"


@EVERYBODY
async def test_s05_a_piece_without_a_newline_comes_at_once(box: Client) -> None:
    await box.exec("true")
    got = await box.stream("printf 10%%; sleep 1; printf '\\r20%%'; sleep 1")
    assert [data for _, data in got.pieces] == [b"10%", b"\r20%"]
    assert got.pieces[0][0] < 0.9
    assert 0.9 < got.pieces[1][0] < 1.9


@EVERYBODY
async def test_s06_events_come_as_they_happen(box: Client) -> None:
    await box.exec("true")
    got = await box.stream("for i in 1 2 3; do echo $i; sleep 0.5; done")
    times = [seconds for seconds, _ in got.pieces]
    assert len(times) == 3
    assert times[0] < 0.5
    assert times[2] > 0.9


async def test_x15_line_ends_in_output_survive_server_sent_events_cut_anywhere(
    sandbox: atoll.Sandbox,
) -> None:
    text = "a\r\nb\rc\u2028d\n"
    stream = sandbox.exec_stream("printf 'a\\r\\nb\\rc\\342\\200\\250d\\n'")
    body = b"".join([chunk async for chunk in stream.sse()])
    for cut in range(len(body)):
        events = [event async for event in atoll.parse_sse_stream([body[:cut], body[cut:]])]
        output = "".join(event["data"] for event in events if event["type"] == "stdout")
        assert (output, events[-1]["type"], events[-1]["exitCode"]) == (text, "complete", 0)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_x10_nothing_cuts_a_command_that_is_silent_for_long(sandbox: atoll.Sandbox) -> None:
    buffered = asyncio.create_task(
        sandbox.exec(["sh", "-c", "sleep 400; echo done"], timeout="10m")
    )
    events = await gather(sandbox.exec_stream(["sh", "-c", "sleep 400; echo done"], timeout="10m"))
    assert (await buffered).stdout == "done\n"
    assert [event.data for event in events if isinstance(event, atoll.Stdout)] == [b"done\n"]


async def test_events_are_numbered_and_offsets_count_all_output(sandbox: atoll.Sandbox) -> None:
    events = await gather(sandbox.exec_stream("echo a; echo bb >&2; echo ccc"))
    outputs = [event for event in events if isinstance(event, atoll.Stdout | atoll.Stderr)]
    position = 0
    for event in outputs:
        assert event.offset == position
        position += len(event.data)
    assert position == 9
    assert [event.seq for event in events] == sorted({event.seq for event in events})


async def test_x08_cancelling_a_call_ends_the_tree_within_a_second(sandbox: atoll.Sandbox) -> None:
    await sandbox.exec("true")
    call = asyncio.create_task(sandbox.exec("sleep 4242 & sleep 4242"))
    await asyncio.sleep(0.5)
    start = time.monotonic()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await sandbox.exec("true")
    left = await sandbox.exec(["sh", "-c", "pgrep -fx 'sleep 4242' | wc -l"])
    assert (left.stdout.strip(), time.monotonic() - start < 2) == ("0", True)


async def test_leaving_a_stream_ends_its_command(sandbox: atoll.Sandbox) -> None:
    async with sandbox.exec_stream("echo a; sleep 4343") as events:
        async for event in events:
            if isinstance(event, atoll.Stdout):
                break
    left = await sandbox.exec(["sh", "-c", "pgrep -fx 'sleep 4343' | wc -l"])
    assert left.stdout.strip() == "0"


async def test_x09_a_sandbox_that_is_destroyed_ends_pending_calls_with_a_typed_error(
    sandbox: atoll.Sandbox,
) -> None:
    await sandbox.exec("true")
    call = asyncio.create_task(sandbox.exec(["sleep", "600"]))
    await asyncio.sleep(0.5)
    start = time.monotonic()
    await sandbox.destroy()
    with pytest.raises(SandboxError) as caught:
        await call
    assert caught.value.wire_code in {"SANDBOX_DESTROYED", "OPERATION_INTERRUPTED"}
    assert time.monotonic() - start < 10


async def test_a_gigantic_stream_is_exact_in_flat_memory(sandbox: atoll.Sandbox) -> None:
    digest, count = hashlib.sha256(), 0
    async for event in sandbox.exec_stream("head -c 200000000 /dev/zero"):
        if isinstance(event, atoll.Stdout):
            digest.update(event.data)
            count += len(event.data)
    assert count == 200_000_000
    assert digest.digest() == hashlib.sha256(bytes(200_000_000)).digest()


async def test_a_handle_feeds_reads_and_waits(sandbox: atoll.Sandbox) -> None:
    async with await sandbox.spawn(["cat"]) as process:
        assert process.pid > 0
        assert process.stdin is not None
        await process.stdin.write("one\n")
        assert await anext(process.stdout) == b"one\n"
        await process.stdin.write(b"two")
        await process.stdin.close()
        assert await process.stdout.read() == b"two"
        assert (await process.wait()).exit_code == 0
        assert process.exit_code == 0


async def test_a_handle_sends_signals_and_kills_the_tree(sandbox: atoll.Sandbox) -> None:
    async with await sandbox.spawn(["sleep", "600"], stdin=None) as process:
        await process.signal("SIGUSR1")
        exited = await process.wait()
    assert exited.signal == signal.Signals.SIGUSR1.name
    script = "trap '' TERM; sleep 4444 & sleep 4444"
    async with await sandbox.spawn(["sh", "-c", script], stdin=None) as process:
        await asyncio.sleep(0.2)
        await process.kill()
        assert (await process.wait()).signal == "SIGKILL"
        await process.kill()
    left = await sandbox.exec(["sh", "-c", "pgrep -fx 'sleep 4444' | wc -l"])
    assert left.stdout.strip() == "0"


async def test_a_handle_with_a_terminal_has_a_size_that_can_change(sandbox: atoll.Sandbox) -> None:
    script = "tty >/dev/null && stty size; read x; stty size"
    async with await sandbox.spawn(["sh", "-c", script], pty=True, cols=100, rows=30) as process:
        assert process.stdin is not None
        lines = process.stdout.lines()
        assert (await anext(lines)).strip() == "30 100"
        await process.resize(120, 40)
        await process.stdin.write("\n")
        rest = [line.strip() async for line in lines]
    assert "40 120" in rest


async def test_reading_one_output_does_not_lose_the_other(sandbox: atoll.Sandbox) -> None:
    script = "for i in $(seq 1000); do echo out$i; echo err$i >&2; done"
    async with await sandbox.spawn(["bash", "-c", script], stdin=None) as process:
        out = await process.stdout.read()
        err = await process.stderr.read()
    assert out.split() == [b"out%d" % n for n in range(1, 1001)]
    assert err.split() == [b"err%d" % n for n in range(1, 1001)]


async def test_a_reader_that_gives_up_does_not_end_the_command(sandbox: atoll.Sandbox) -> None:
    async with await sandbox.spawn(["sh", "-c", "sleep 0.5; echo late"], stdin=None) as process:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await anext(process.stdout)
        assert (await process.output()).stdout == "late\n"


async def test_two_readers_at_once_get_what_is_theirs(sandbox: atoll.Sandbox) -> None:
    script = "echo a; echo b >&2; sleep 0.2; echo c; echo d >&2"
    async with await sandbox.spawn(["sh", "-c", script], stdin=None) as process:
        out, err = await asyncio.gather(process.stdout.read(), process.stderr.read())
    assert (out, err) == (b"a\nc\n", b"b\nd\n")


async def test_a_handle_in_a_session_runs_beside_its_commands(sandbox: atoll.Sandbox) -> None:
    session = await sandbox.create_session(id="s", env={"WHO": "s"}, cwd="/tmp")
    await session.exec("cd /usr; export SET=1")
    async with await session.spawn("echo $WHO $SET $PWD; cat; exit 3") as handle:
        assert (await session.exec("echo meanwhile")).stdout == "meanwhile\n"
        assert handle.stdin is not None
        await handle.stdin.write("typed\n")
        await handle.stdin.close()
        result = await handle.output()
    assert (result.stdout, result.exit_code) == ("s 1 /usr\ntyped\n", 3)
    assert (await session.exec("echo $SET")).stdout == "1\n"
