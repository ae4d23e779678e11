"""Handles, in what a real engine shows rarely; the rest is in the conformance suite."""

import pytest

import atoll
from atoll import errors
from atoll.sdk._async import process
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
MISSING = failing(errors.OperationNotFoundError("over"))


async def test_a_command_that_cannot_start_gives_no_handle(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, failing(errors.CommandNotFoundError("no x")))
    with pytest.raises(errors.CommandNotFoundError):
        await sandbox.spawn(["x"])
    told = errors.CommandNotFoundError("no x").to_wire()
    engine.script(EXEC, Answer(frame(Kind.ERROR, **told)))
    with pytest.raises(errors.CommandNotFoundError):
        await sandbox.spawn(["x"])


async def test_a_handle_of_a_command_that_ended_can_be_used_safely(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, command(b"x", exit_code=3))
    engine.script("POST /stdin", MISSING)
    engine.script("POST /signal", MISSING)
    async with await sandbox.spawn(["x"]) as handle:
        assert handle.exit_code is None
        await handle.kill()
        assert (await handle.wait()).exit_code == 3
        await handle.kill()
        assert handle.stdin is not None
        await handle.stdin.close()
        await handle.stdin.close()
        with pytest.raises(errors.OperationNotFoundError):
            await handle.stdin.write("late")
        assert (await handle.output()).stdout == "x"
    assert len(engine.requests("POST /signal")) == 1


async def test_input_is_cut_into_pieces_in_order(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, command())
    engine.script("POST /stdin", Answer())
    async with await sandbox.spawn(["cat"]) as handle:
        assert handle.stdin is not None
        await handle.stdin.write(bytes(1 << 20) + b"end")
        await handle.stdin.close()
    pieces = engine.requests("POST /stdin")
    assert [len(seen.body) for seen in pieces] == [1 << 20, 3, 0]
    assert [seen.query for seen in pieces] == ["", "", "close=true"]


async def test_leaving_the_block_ends_the_command(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, Answer(STARTED, hold=True))
    engine.script("DELETE ", Answer())
    async with await sandbox.spawn(["sleep", "600"]):
        pass
    assert len(engine.requests("DELETE ")) == 1


async def test_an_outcome_that_is_not_known_is_an_error_of_wait(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, Answer(STARTED + out(0, b"some"), cut=len(STARTED) + 25))
    engine.script("GET ", MISSING)
    async with await sandbox.spawn(["x"]) as handle:
        with pytest.raises(errors.OperationInterruptedError):
            await handle.wait()
        assert await handle.stdout.read() == b"some"


async def test_a_handle_that_was_closed_says_so(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, Answer(STARTED, hold=True))
    engine.script("DELETE ", Answer())
    handle = await sandbox.spawn(["x"])
    await handle.aclose()
    with pytest.raises(errors.OperationInterruptedError, match="closed"):
        await handle.wait()


async def test_unread_output_is_bounded_and_the_loss_is_told(
    engine: EngineDouble, sandbox: atoll.Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "OUTPUT_LIMIT", 5)
    body = STARTED + out(0, b"abc") + out(3, b"defg") + out(7, b"h")
    engine.script(EXEC, Answer(body + frame(Kind.EXITED, exit_code=0, stdout_bytes=8)))
    async with await sandbox.spawn(["x"]) as handle:
        result = await handle.output()
    assert (result.stdout, result.truncated, result.stdout_total) == ("abc", True, 8)


async def test_a_gap_is_told_by_both_outputs(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    gap = frame(Kind.GAP, from_offset=0, to_offset=9, reason="lost")
    engine.script(EXEC, Answer(STARTED + gap + frame(Kind.EXITED, exit_code=0)))
    async with await sandbox.spawn(["x"]) as handle:
        await handle.wait()
    assert handle.stdout.truncated
    assert handle.stderr.truncated


async def test_lines_are_text_without_their_ends(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    body = STARTED + out(0, b"a\xc3") + out(2, b"\xbc\n\nlast") + frame(Kind.EXITED, exit_code=0)
    engine.script(EXEC, Answer(body))
    async with await sandbox.spawn(["x"]) as handle:
        assert [line async for line in handle.stdout.lines()] == ["aü", "", "last"]


async def test_signals_and_sizes_are_sent(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    engine.script(EXEC, command())
    engine.script("POST /signal", Answer())
    engine.script("POST /resize", Answer())
    async with await sandbox.spawn(["x"], pty=True) as handle:
        await handle.signal("SIGHUP")
        await handle.resize(100, 30)
    assert engine.requests("POST /signal")[0].json() == {"signal": "SIGHUP"}
    assert engine.requests("POST /resize")[0].json() == {"cols": 100, "rows": 30}
