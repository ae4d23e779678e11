"""A command is followed over lost connections, and ended when nobody follows it any more."""

import asyncio
import signal
import threading
import time
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest

import atoll
from atoll import errors
from atoll.wire import frames
from atoll.wire.frames import Kind
from integration.sdk.engine_double import (
    STARTED,
    Answer,
    EngineDouble,
    command,
    failing,
    frame,
    out,
)

EXEC = "POST /exec"
ALL = b"".join(bytes([number]) * 100 for number in range(20))
WHOLE = STARTED + b"".join(out(n * 100, ALL[n * 100 : n * 100 + 100]) for n in range(20))
EXIT = frame(Kind.EXITED, exit_code=0)


def operation_of(engine: EngineDouble) -> str:
    return engine.requests(EXEC)[0].headers["idempotency-key"]


def attach(engine: EngineDouble, *answers: Answer) -> None:
    """Script the answers of attaching to whatever operation comes."""
    engine.script("GET ", *answers)


async def test_a_lost_stream_goes_on_where_it_ended(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, Answer(WHOLE, cut=1000))
    rest = frame(Kind.STARTED, pid=7) + WHOLE[len(STARTED) :] + EXIT
    attach(engine, Answer(rest, cut=1500), Answer(rest))
    result = await sandbox.exec("x")
    assert result.stdout_bytes == ALL
    assert not result.truncated
    attached = [seen for seen in engine.seen if seen.method == "GET"]
    assert [seen.path.rpartition("/")[2] for seen in attached] == [operation_of(engine)] * 2
    offsets = [int(seen.query.partition("=")[2]) for seen in attached]
    assert offsets == sorted(offsets)
    assert offsets[0] > 0
    assert len(engine.requests(EXEC)) == 1


async def test_a_stream_that_is_lost_before_its_first_byte_is_attached_not_sent_again(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, Answer(silent=True))
    attach(engine, command(b"once"))
    assert (await sandbox.exec("x")).stdout == "once"
    assert len(engine.requests(EXEC)) == 1


async def test_an_engine_that_restarts_during_a_command_is_waited_for(tmp_path: Path) -> None:
    double = EngineDouble(tmp_path / "e.sock")
    double.script(EXEC, Answer(WHOLE[:800], hold=True))
    attach(double, Answer(WHOLE[len(STARTED) :] + EXIT))
    async with atoll.connect(double.url) as env:
        with double.serving():
            call = asyncio.create_task(atoll.get_sandbox(env.Sandbox, "b").exec("x"))
            await asyncio.to_thread(double.wait_for, EXEC)
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.3)
        with double.serving():
            assert (await call).stdout_bytes == ALL


async def test_an_outcome_that_is_not_known_is_an_error_with_the_output_so_far(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, Answer(WHOLE, cut=len(STARTED) + 1000))
    attach(engine, failing(errors.OperationNotFoundError("unknown")))
    with pytest.raises(errors.OperationInterruptedError) as caught:
        await sandbox.exec("x")
    assert 0 < len(caught.value.result.stdout_bytes) < len(ALL)


async def test_a_sandbox_that_is_gone_is_a_typed_error(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    gone = errors.SandboxDestroyedError("destroyed").to_wire()
    engine.script(EXEC, Answer(STARTED + frame(Kind.ERROR, **gone)))
    with pytest.raises(errors.SandboxDestroyedError):
        await sandbox.exec("sleep 600")


async def test_a_stream_tells_a_lost_outcome_as_its_last_event(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, Answer(STARTED, cut=len(STARTED)))
    attach(engine, failing(errors.SandboxDestroyedError("destroyed")))
    events = [event async for event in sandbox.exec_stream("x")]
    assert isinstance(events[-1], atoll.Failed)
    assert events[-1].error["code"] == "SANDBOX_DESTROYED"


async def test_a_cancelled_call_ends_its_command_within_a_second(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, Answer(STARTED, hold=True))
    engine.script("DELETE ", Answer())
    call = asyncio.create_task(sandbox.exec("sleep 600"))
    await asyncio.to_thread(engine.wait_for, EXEC)
    await asyncio.sleep(0.05)
    start = time.monotonic()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert time.monotonic() - start < 1
    assert engine.requests("DELETE ")[0].path.endswith(operation_of(engine))


async def test_a_timeout_around_a_call_ends_its_command_too(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, Answer(STARTED, hold=True))
    engine.script("DELETE ", Answer())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await sandbox.exec("sleep 600")
    assert len(engine.requests("DELETE ")) == 1


async def test_an_engine_that_does_not_answer_a_cancel_holds_the_caller_a_second_at_most(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, Answer(STARTED, hold=True))
    engine.script("DELETE ", Answer(delay=30))
    call = asyncio.create_task(sandbox.exec("sleep 600"))
    await asyncio.to_thread(engine.wait_for, EXEC)
    start = time.monotonic()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert time.monotonic() - start < 2


async def test_leaving_a_stream_early_ends_the_command(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, Answer(WHOLE, hold=True))
    engine.script("DELETE ", Answer())
    async with sandbox.exec_stream("yes") as events:
        async for event in events:
            if isinstance(event, atoll.Stdout):
                break
    assert len(engine.requests("DELETE ")) == 1


async def test_a_stream_read_to_its_end_is_not_cancelled(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, command(b"x"))
    async with sandbox.exec_stream("x") as events:
        async for _ in events:
            pass
    assert [seen.method for seen in engine.seen] == ["POST"]


async def test_a_stream_that_was_never_begun_sends_nothing(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    async with aclosing(sandbox.exec_stream("x")):
        pass
    assert engine.seen == []


async def test_a_command_that_could_not_be_started_is_not_cancelled(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, failing(errors.InvalidImageError("bad")))
    with pytest.raises(errors.InvalidImageError):
        await sandbox.exec("x")
    assert len(engine.seen) == 1


async def test_garbage_in_a_stream_is_never_an_exit_code(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, Answer(STARTED + b"HTTP/1.1 500 Oops"))
    with pytest.raises(errors.VersionMismatchError):
        await sandbox.exec("x")


async def test_ctrl_c_ends_the_command_of_a_blocking_call(
    engine: EngineDouble, blocking: "atoll.sync.Sandbox"
) -> None:
    engine.script(EXEC, Answer(STARTED, hold=True))
    engine.script("DELETE ", Answer())
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        engine.wait_for(EXEC)
        time.sleep(0.1)
        signal.pthread_kill(main, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    start = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            blocking.exec("sleep 600")
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - start < 3
    assert len(engine.requests("DELETE ")) == 1


def test_leaving_a_blocking_stream_early_ends_the_command(
    engine: EngineDouble, blocking: "atoll.sync.Sandbox"
) -> None:
    engine.script(EXEC, Answer(WHOLE, hold=True))
    engine.script("DELETE ", Answer())
    with blocking.exec_stream("yes") as events:
        assert isinstance(next(events), atoll.Started)
    assert len(engine.requests("DELETE ")) == 1


def test_a_blocking_stream_goes_on_where_it_ended(
    engine: EngineDouble, blocking: "atoll.sync.Sandbox"
) -> None:
    engine.script(EXEC, Answer(WHOLE, cut=1234))
    attach(engine, Answer(WHOLE[len(STARTED) :] + EXIT))
    assert blocking.exec("x").stdout_bytes == ALL


async def test_standard_input_of_any_size_is_streamed(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, command())

    async def pieces() -> Any:
        for _ in range(5):
            yield b"x" * (1 << 20)

    await sandbox.exec("cat", stdin=pieces())
    seen = engine.requests(EXEC)[0]
    assert seen.headers["content-type"] == "application/vnd.atoll.frames"
    got = list(frames.Decoder().feed(seen.body))
    assert sum(len(frame.payload) for frame in got if frame.kind == Kind.STDIN) == 5 << 20
    assert got[-1].kind == Kind.STDIN_CLOSE


async def test_input_that_is_used_up_is_not_sent_a_second_time(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, failing(errors.ContainerNotReadyError("starting")), command())
    with pytest.raises(errors.ContainerNotReadyError):
        await sandbox.exec("cat", stdin=iter([b"once"]))
    assert (await sandbox.exec("cat", stdin=b"bytes")).success


async def test_an_input_that_fails_is_the_callers_own_error(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, command())
    engine.script("DELETE ", Answer())

    def broken() -> Any:
        yield b"x"
        raise ZeroDivisionError

    with suppress(asyncio.CancelledError), pytest.raises(ZeroDivisionError):
        await sandbox.exec("cat", stdin=broken())
