"""A session is the sandbox's API with a state and a time limit of its own."""

import atoll
from integration.sdk.engine_double import Answer, EngineDouble, command


async def test_every_call_of_a_session_names_it(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("GET /sessions/s", Answer(b'{"id": "s", "commandTimeout": 7000}'))
    engine.script("POST /exec", command())
    engine.script("POST /files/mkdir", Answer())
    engine.script("DELETE /sessions/s", Answer())
    session = await sandbox.get_session("s")
    await session.exec("x")
    await session.exec("x", timeout=1)
    await session.mkdir("d")
    await session.delete()
    first, second = (seen.json() for seen in engine.requests("POST /exec"))
    assert (first["session"], first["timeout"], second["timeout"]) == ("s", 7000, 1000)
    assert engine.requests("POST /files/mkdir")[0].json() == {"path": "d", "session": "s"}
    assert len(engine.requests("DELETE /sessions/s")) == 1
    assert repr(session) == "<Session s of Sandbox/box>"


async def test_every_call_of_a_session_means_the_sandbox_it_was_made_in(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("GET /sessions/s", Answer(b'{"id": "s", "life": "abc"}'))
    engine.script("POST /exec", command())
    engine.script("POST /files/mkdir", Answer())
    engine.script("GET /files", Answer(b"x"))
    session = await sandbox.get_session("s")
    await session.exec("x")
    await session.mkdir("d")
    for kind in ("POST /exec", "POST /files/mkdir"):
        assert engine.requests(kind)[0].headers["atoll-life"] == "abc"
    assert "atoll-life" not in engine.requests("GET /sessions/s")[0].headers
