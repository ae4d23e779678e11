import asyncio
import json
import re
import time
from typing import Any

import pytest

import atoll
from atoll.wire.frames import Kind
from integration.sdk.engine_double import STARTED, Answer, EngineDouble, failing, frame, out

ONE = "GET /processes/p"
LOGS = "GET /logs/stream"
PORT = "POST /processes/p/port"


def told(**fields: Any) -> Answer:
    known = {
        "id": "p", "handle": "h1", "pid": 7, "command": "x", "status": "running",
        "startTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return Answer(json.dumps(known | fields).encode())


EXITED = {"status": "failed", "exitCode": 3, "endTime": "2026-01-01T00:00:01Z"}


@pytest.fixture
async def process(engine: EngineDouble, sandbox: atoll.Sandbox) -> atoll.Process:
    engine.script("POST /processes", told())
    return await sandbox.start_process("x")


async def test_attributes_are_those_of_the_last_answer(
    engine: EngineDouble, process: atoll.Process
) -> None:
    assert (process.id, process.pid, process.status, process.exit_code) == ("p", 7, "running", None)
    engine.script(ONE, told(**EXITED))
    assert await process.get_status() == "failed"
    assert process.exit_code == 3
    assert process.end_time is not None
    assert process.to_dict()["exitCode"] == 3
    assert "p failed" in repr(process)
    assert engine.requests(ONE)[0].query == "handle=h1"


async def test_a_stale_handle_says_so(engine: EngineDouble, process: atoll.Process) -> None:
    engine.script("DELETE /processes/p", failing(atoll.StaleHandleError("started again")))
    with pytest.raises(atoll.StaleHandleError):
        await process.kill("SIGINT")
    assert engine.requests("DELETE /processes/p")[0].query == "signal=SIGINT&handle=h1"


async def test_waiting_for_the_end_asks_again_and_again(
    engine: EngineDouble, process: atoll.Process
) -> None:
    engine.script(ONE, told(), Answer(silent=True), told(**EXITED))
    assert await process.wait_for_exit() == 3
    assert [seen.query for seen in engine.requests(ONE)] == ["handle=h1&wait=30000"] * 3


async def test_waiting_for_the_end_has_a_limit(
    engine: EngineDouble, process: atoll.Process
) -> None:
    engine.script(ONE, told())
    with pytest.raises(atoll.ProcessReadyTimeoutError):
        await process.wait_for_exit(0.05)


async def test_an_unknown_exit_code_is_an_error(
    engine: EngineDouble, process: atoll.Process
) -> None:
    engine.script(ONE, told(status="killed", reason="its sandbox ended"))
    with pytest.raises(atoll.ProcessError, match="its sandbox ended"):
        await process.wait_for_exit()


async def test_a_port_is_waited_for_in_pieces(engine: EngineDouble, process: atoll.Process) -> None:
    engine.script(PORT, Answer(b'{"ready": false}'), Answer(b'{"ready": true, "status": 200}'))
    await process.wait_for_port(8080, path="/up", status=range(200, 300), interval=0.1)
    wanted = engine.requests(PORT)[1].json()
    assert wanted == {
        "port": 8080, "path": "/up", "status": [200, 299], "interval": 100, "wait": 30_000,
        "handle": "h1",
    }  # fmt: skip


async def test_a_port_of_a_process_that_ended_is_an_error_with_its_last_words(
    engine: EngineDouble, process: atoll.Process
) -> None:
    engine.script(PORT, failing(atoll.ProcessExitedBeforeReadyError("ended")))
    engine.script(ONE, told(**EXITED))
    ending = frame(Kind.EXITED, exit_code=3, offset=5)
    engine.script(LOGS, Answer(STARTED + out(0, b"oops\n", Kind.STDERR) + ending))
    with pytest.raises(atoll.ProcessExitedBeforeReadyError) as caught:
        await process.wait_for_port(8080)
    assert (caught.value.context["exit_code"], caught.value.context["tail"]) == (3, "oops")


async def test_a_line_is_found_in_either_stream_and_the_wait_leaves_the_stream(
    engine: EngineDouble, process: atoll.Process
) -> None:
    body = STARTED + out(0, b"a\n") + out(2, b"on 80", Kind.STDERR) + out(7, b"80\n", Kind.STDERR)
    engine.script(LOGS, Answer(body, hold=True))
    start = time.monotonic()
    found = await process.wait_for_log(re.compile(r"on (\d+)"), timeout=20)
    assert found.match
    assert found.match[1] == "8080"
    assert time.monotonic() - start < 5
    assert "limit=20000" in engine.requests(LOGS)[0].query


async def test_a_prompt_without_an_end_is_found_in_the_pause(
    engine: EngineDouble, process: atoll.Process
) -> None:
    engine.script(LOGS, Answer(STARTED + out(0, b"Name: ") + frame(Kind.HEARTBEAT), hold=True))
    found = await process.wait_for_log(re.compile("Name: $"))
    assert found.line == "Name: "


async def test_no_such_line_is_an_early_end_or_a_timeout(
    engine: EngineDouble, process: atoll.Process
) -> None:
    engine.script(ONE, told(**EXITED))
    engine.script(LOGS, Answer(STARTED + frame(Kind.EXITED, exit_code=3)))
    with pytest.raises(atoll.ProcessExitedBeforeReadyError):
        await process.wait_for_log("x")
    engine.script(LOGS, Answer(STARTED + frame(Kind.END, offset=0)))
    with pytest.raises(atoll.ProcessReadyTimeoutError):
        await process.wait_for_log("x", timeout=1)


async def test_callbacks_that_cannot_go_on_are_told_why(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("POST /processes", told())
    engine.script(LOGS, failing(atoll.ProcessNotFoundError("gone")))
    failed: asyncio.Future[atoll.SandboxError] = asyncio.get_running_loop().create_future()
    await sandbox.start_process("x", on_exit=print, on_error=failed.set_result)
    assert isinstance(await asyncio.wait_for(failed, 5), atoll.ProcessNotFoundError)


async def test_a_call_whose_answer_was_lost_is_sent_again_with_its_key(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("POST /processes", Answer(silent=True), Answer(cut=3), told())
    assert (await sandbox.start_process("x")).id == "p"
    keys = {seen.headers["idempotency-key"] for seen in engine.requests("POST /processes")}
    assert len(engine.requests("POST /processes")) == 3
    assert len(keys) == 1


async def test_an_interruption_that_the_engine_tells_of_is_not_repeated(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    error = atoll.OperationInterruptedError("the sandbox was stopped", request_id="r1")
    engine.script("POST /processes", failing(error))
    with pytest.raises(atoll.OperationInterruptedError):
        await sandbox.start_process("x")
    assert len(engine.requests("POST /processes")) == 1
