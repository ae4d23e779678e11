"""Requests reach the engine once, errors are typed, waiting is bounded."""

import asyncio
import dataclasses
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import atoll
from atoll import errors
from atoll.sdk import _shared
from integration.sdk._async.test_target import INFO
from integration.sdk.engine_double import STARTED, Answer, EngineDouble, command, failing

MKDIR = "POST /files/mkdir"
GONE = Answer(silent=True)


async def test_without_options_the_first_request_is_the_call_itself(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("POST /exec", command())
    await sandbox.exec("true")
    assert [seen.path for seen in engine.seen] == ["/v2/namespaces/Sandbox/sandboxes/box/exec"]


async def test_calls_one_after_the_other_use_one_connection(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("POST /exec", command(b"x"))
    engine.script(MKDIR, Answer())
    for _ in range(3):
        await sandbox.exec("true")
        await sandbox.mkdir("/x")
    assert engine.connections == 1


async def test_many_calls_at_once_do_not_wait_for_each_other(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    """The client library's own limit of 100 connections would make the second half wait."""
    engine.script(MKDIR, Answer(delay=0.5))
    start = time.monotonic()
    await asyncio.gather(*(sandbox.mkdir("/x") for _ in range(200)))
    assert time.monotonic() - start < 5
    assert engine.connections == 200


async def test_an_error_of_the_engine_is_raised_as_its_class(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(MKDIR, failing(errors.FileExistsError("there is", context={"path": "/x"})))
    with pytest.raises(errors.FileExistsError) as caught:
        await sandbox.mkdir("/x")
    assert isinstance(caught.value, FileExistsError)
    assert caught.value.context == {"path": "/x"}
    assert len(engine.seen) == 1


async def test_a_sandbox_that_is_not_ready_is_tried_again_with_the_same_key(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(MKDIR, *[failing(errors.ContainerNotReadyError("starting"))] * 3, Answer())
    await sandbox.mkdir("/x")
    keys = {seen.headers["idempotency-key"] for seen in engine.seen}
    assert (len(engine.seen), len(keys)) == (4, 1)


async def test_a_sandbox_that_stays_not_ready_is_an_error_after_the_time_given(
    engine: EngineDouble, env: atoll.Environment
) -> None:
    engine.script(MKDIR, failing(errors.ContainerNotReadyError("starting")))
    sandbox = atoll.get_sandbox(env.Sandbox, "b", container_timeouts={"instance_get": 0.3})
    start = time.monotonic()
    with pytest.raises(errors.ContainerNotReadyError):
        await sandbox.mkdir("/x")
    assert 0.3 <= time.monotonic() - start < 3
    assert len(engine.seen) > 2


async def test_other_retryable_errors_are_left_to_the_caller(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(MKDIR, failing(errors.MaxInstancesExceededError("full"), retry_after="7"))
    with pytest.raises(errors.MaxInstancesExceededError) as caught:
        await sandbox.mkdir("/x")
    assert (len(engine.seen), caught.value.retry_after) == (1, 7.0)


async def test_a_sandbox_that_does_as_much_as_it_may_is_left_to_the_caller(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    """What runs may run for hours; the next call is a new one, and may succeed."""
    engine.script("POST /exec", failing(errors.ResourceBusyError("40 commands run")), command())
    with pytest.raises(errors.ResourceBusyError) as caught:
        await sandbox.exec("true")
    assert (len(engine.seen), caught.value.retryable) == (1, False)
    assert (await sandbox.exec("true")).success
    keys = {seen.headers["idempotency-key"] for seen in engine.seen}
    assert len(keys) == 2


async def test_a_request_whose_answer_is_lost_is_not_sent_again(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(MKDIR, GONE, Answer())
    with pytest.raises(errors.OperationInterruptedError, match="not known whether"):
        await sandbox.mkdir("/x")
    assert len(engine.seen) == 1


async def test_an_engine_that_was_never_there_is_told_at_once(tmp_path: Path) -> None:
    socket = tmp_path / "no.sock"
    async with atoll.connect(f"unix://{socket}") as env:
        start = time.monotonic()
        with pytest.raises(errors.EngineUnreachableError) as caught:
            await atoll.get_sandbox(env.Sandbox, "b").mkdir("/x")
    assert time.monotonic() - start < 1
    assert str(socket) in str(caught.value)
    assert "atoll serve" in str(caught.value)


async def test_an_engine_that_restarts_is_waited_for(tmp_path: Path) -> None:
    double = EngineDouble(tmp_path / "e.sock")
    double.script(MKDIR, Answer())
    async with atoll.connect(double.url) as env:
        sandbox = atoll.get_sandbox(env.Sandbox, "b")
        with double.serving():
            await sandbox.mkdir("/1")
        call = asyncio.create_task(sandbox.mkdir("/2"))
        await asyncio.sleep(0.2)
        assert not call.done()
        with double.serving():
            await call


async def test_the_key_is_sent(engine: EngineDouble) -> None:
    engine.script(MKDIR, Answer())
    async with atoll.connect(engine.url, api_key="k1") as env:
        await atoll.get_sandbox(env.Sandbox, "b").mkdir("/x")
    assert engine.seen[0].headers["authorization"] == "Bearer k1"


async def test_an_engine_that_does_not_know_the_call_is_asked_for_its_version(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("GET /version", Answer(b'{"version":"0.0.1","api":1,"engineId":"e"}'))
    with pytest.raises(errors.VersionMismatchError, match="upgrade the engine"):
        await sandbox.mkdir("/x")


async def test_a_call_that_only_we_do_not_know_stays_what_it_is(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("GET /version", Answer(b'{"version":"0.0.1","api":2,"engineId":"e"}'))
    with pytest.raises(errors.RouteNotFoundError):
        await sandbox.mkdir("/x")


async def test_something_else_that_listens_there_is_not_taken_for_an_engine(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(MKDIR, Answer(b"<html>hello</html>"))
    with pytest.raises(errors.VersionMismatchError, match="something else"):
        await sandbox.mkdir("/x")


def test_one_environment_works_in_one_event_loop_after_the_other(engine: EngineDouble) -> None:
    engine.script(MKDIR, Answer())
    env = atoll.connect(engine.url)
    sandbox = atoll.get_sandbox(env.Sandbox, "b")

    async def once() -> None:
        async with env:
            await sandbox.mkdir("/x")

    asyncio.run(once())
    asyncio.run(once())
    assert len(engine.seen) == 2


# The sockets of a loop that has ended are left to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_environment_works_in_several_event_loops_at_once(engine: EngineDouble) -> None:
    engine.script("PUT /sandboxes/b", dataclasses.replace(INFO, delay=0.2))
    engine.script(MKDIR, Answer())
    env = atoll.connect(engine.url)
    sandbox = atoll.get_sandbox(env.Sandbox, "b", labels={"a": "b"})

    async def work() -> None:
        async with asyncio.timeout(30):
            await asyncio.gather(*(sandbox.mkdir("/x") for _ in range(10)))
            for _ in range(10):
                await sandbox.mkdir("/x")

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(asyncio.run, work()) for _ in range(4)]:
            done.result()
    made = [seen for seen in engine.seen if seen.path.endswith("/mkdir")]
    assert (len(made), len(engine.seen)) == (80, 81)


async def test_an_environment_that_was_closed_says_so(
    engine: EngineDouble, env: atoll.Environment
) -> None:
    sandbox = atoll.get_sandbox(env.Sandbox, "b")
    await env.aclose()
    for call in (sandbox.mkdir("/x"), sandbox.exec("true"), env.url()):
        with pytest.raises(errors.EngineUnreachableError, match="is closed"):
            await call
    assert engine.connections == 0


def test_a_forked_child_gets_connections_of_its_own(
    engine: EngineDouble, blocking: "atoll.sync.Sandbox"
) -> None:
    engine.script(MKDIR, Answer())
    blocking.mkdir("/parent")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            blocking.mkdir("/child")
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    blocking.mkdir("/parent")
    assert engine.connections == 2


def test_a_forked_child_that_drops_a_stream_leaves_the_parents_command_alone(
    engine: EngineDouble, blocking: "atoll.sync.Sandbox"
) -> None:
    engine.script("POST /exec", Answer(STARTED, hold=True))
    engine.script("DELETE ", Answer())
    stream = blocking.exec_stream("x")
    next(stream)
    child = os.fork()
    if child == 0:
        try:
            stream.close()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert engine.requests("DELETE ") == []
    stream.close()
    engine.wait_for("DELETE ")


def test_retry_time_is_long_enough_for_a_restart_and_shorter_than_the_orphan_grace() -> None:
    assert 5 <= _shared.RECONNECT_SECONDS < 60


async def test_what_only_reads_is_asked_again_when_its_answer_is_lost(
    engine: EngineDouble, env: atoll.Environment
) -> None:
    listed = Answer(b'{"sandboxes": []}')
    engine.script("GET /sandboxes", GONE, Answer(b'{"sandboxes": []}', cut=5), listed)
    assert len(await env.Sandbox.list()) == 0
    assert len(engine.seen) == 3


async def test_a_key_that_asks_too_much_waits_as_it_is_told(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(MKDIR, failing(errors.RateLimitedError("slow"), **{"retry-after": "1"}), Answer())
    start = time.monotonic()
    await sandbox.mkdir("/x")
    assert time.monotonic() - start >= 1.0
    assert len({seen.headers["idempotency-key"] for seen in engine.seen}) == 1


async def test_the_engine_is_told_which_api_the_client_speaks(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(MKDIR, Answer())
    await sandbox.mkdir("/x")
    assert engine.seen[0].headers["atoll-api"] == "2"


async def test_an_engine_that_refuses_our_version_is_told_in_its_words(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    refusal = errors.VersionMismatchError("this engine speaks API 3", suggestion="upgrade")
    engine.script(MKDIR, failing(refusal))
    with pytest.raises(errors.VersionMismatchError, match="upgrade"):
        await sandbox.mkdir("/x")


async def test_a_proxy_that_gets_no_answer_leaves_the_outcome_open(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(MKDIR, Answer(b"<html>504 Gateway Time-out</html>", 504))
    with pytest.raises(
        errors.OperationInterruptedError, match="proxy on the way answered HTTP 504"
    ):
        await sandbox.mkdir("/x")
    assert len(engine.seen) == 1
