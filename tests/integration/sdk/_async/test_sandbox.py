"""Sessions and life of a sandbox."""

import atoll
from integration.sdk.engine_double import Answer, EngineDouble

INFO = (
    '{"id":"box","namespace":"Sandbox","state":"%s","generation":1,"image":"i",'
    '"instanceType":"lite","isolation":"container","runtime":"runc","wanted":{},'
    '"limits":{"memory":1,"cpu":1,"disk":1,"pids":1},"createdAt":"2026-01-01T00:00:00Z"%s}'
)


def info(state: str, more: str = "") -> Answer:
    return Answer((INFO % (state, more)).encode())


async def test_the_state_is_told_in_the_words_of_0_12(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    changed = ',"stateChangedAt":"2026-02-03T00:00:00Z","exitCode":3'
    engine.script("GET /sandboxes/box", info("running"), info("stopped", changed))
    assert (await sandbox.get_state()).status == "healthy"
    assert (await sandbox.get_state()).to_dict() == {
        "status": "stopped_with_code",
        "lastChange": "2026-02-03T00:00:00Z",
        "exitCode": 3,
    }


async def test_start_and_stop_answer_with_what_is_now(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("POST /start", info("running"))
    engine.script("POST /stop", info("stopped"))
    assert (await sandbox.start()).state == "running"
    assert (await sandbox.stop()).state == "stopped"


async def test_a_session_is_made_with_its_options(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("POST /sessions", Answer(b'{"id": "s", "commandTimeout": 5000}'))
    session = await sandbox.create_session(
        id="s", env={"A": "1"}, cwd="/tmp", user="u", isolation=True, command_timeout=5
    )
    assert engine.seen[0].json() == {
        "id": "s",
        "env": {"A": "1"},
        "cwd": "/tmp",
        "user": "u",
        "isolation": True,
        "commandTimeout": 5000,
    }
    assert session.id == "s"


async def test_sessions_are_listed_and_deleted(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("GET /sessions", Answer(b'{"sessions": [{"id": "default"}]}'))
    engine.script("DELETE /sessions/s", Answer())
    assert [session.id for session in await sandbox.list_sessions()] == ["default"]
    await sandbox.delete_session("s")
    assert len(engine.requests("DELETE /sessions/s")) == 1
