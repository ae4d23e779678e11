import json
from typing import Any

import pytest

import atoll
from integration.sdk._async.test_background import told
from integration.sdk.engine_double import Answer, EngineDouble, failing

ALL = "POST /processes"


async def test_options_are_sent_and_defaults_are_not(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(ALL, told())
    await sandbox.start_process("x")
    await sandbox.start_process(
        ["a", "b"], process_id="p", auto_cleanup=False, restart=True, keep_awake=True,
        timeout="2s", env={"A": None}, cwd="/tmp", user="app", session="s",
    )  # fmt: skip
    assert engine.requests(ALL)[0].json() == {"command": "x"}
    assert engine.requests(ALL)[1].json() == {
        "command": ["a", "b"], "processId": "p", "autoCleanup": False, "restart": True,
        "keepAwake": True, "timeout": 2000, "env": {"A": None}, "cwd": "/tmp", "user": "app",
        "session": "s",
    }  # fmt: skip


async def test_a_session_starts_its_own(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    engine.script("POST /sessions", Answer(b'{"id": "s1"}'))
    engine.script(ALL, told(sessionId="s1"))
    session = await sandbox.create_session(id="s1")
    process = await session.start_process("x")
    assert engine.requests(ALL)[0].json()["session"] == "s1"
    assert process.session_id == "s1"


async def test_callbacks_of_the_start(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    told_of: list[Any] = []
    engine.script(ALL, told(), failing(atoll.CommandNotFoundError("none")))
    process = await sandbox.start_process("x", on_start=told_of.append)
    assert told_of == [process]
    with pytest.raises(atoll.CommandNotFoundError):
        await sandbox.start_process("x", on_error=told_of.append)
    assert isinstance(told_of[1], atoll.CommandNotFoundError)


async def test_what_cannot_be_a_command_costs_no_request(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    with pytest.raises(atoll.InvalidCommandError):
        await sandbox.start_process("")
    with pytest.raises(atoll.ValidationFailedError):
        await sandbox.start_process("x", timeout=0)
    assert engine.seen == []


async def test_listing_and_looking(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    one = json.loads(told().body)
    engine.script("GET /processes", Answer(json.dumps({"processes": [one]}).encode()))
    engine.script("GET /processes/p", told())
    engine.script("GET /processes/q", failing(atoll.ProcessNotFoundError("none")))
    assert [process.id for process in await sandbox.list_processes()] == ["p"]
    found = await sandbox.get_process("p")
    assert found is not None
    assert found.pid == 7
    assert await sandbox.get_process("q") is None


async def test_ending_and_cleaning_up(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    engine.script("DELETE /processes/p", told(status="killed"))
    engine.script("DELETE /processes", Answer(b'{"count": 2}'))
    engine.script("POST /processes/cleanup", Answer(b'{"count": 3}'))
    await sandbox.kill_process("p", "SIGINT")
    await sandbox.stop_process("p")
    assert [seen.query for seen in engine.requests("DELETE /processes/p")] == ["signal=SIGINT", ""]
    assert await sandbox.kill_all_processes() == 2
    assert await sandbox.cleanup_completed_processes() == 3
