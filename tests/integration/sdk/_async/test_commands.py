"""What `exec`, `exec_stream` and `spawn` ask for, and what callers are told."""

from typing import Any

import pytest

import atoll
from atoll import errors
from atoll.wire.frames import Kind
from integration.sdk.engine_double import Answer, EngineDouble, command, failing, frame, out

EXEC = "POST /exec"


async def asked(engine: EngineDouble, sandbox: atoll.Sandbox, *args: Any, **options: Any) -> Any:
    """Run a command and return the request that arrived."""
    engine.script(EXEC, command())
    await sandbox.exec(*args, **options)
    return engine.requests(EXEC)[-1].json()


async def test_only_what_is_not_the_default_is_sent(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    assert await asked(engine, sandbox, "echo x") == {"command": "echo x", "buffered": True}


async def test_all_options_are_sent(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    request = await asked(
        engine,
        sandbox,
        ["a", "b"],
        timeout="5m",
        env={"K": "v", "U": None},
        cwd="/tmp",
        user="1000:1000",
        session="s1",
        stream=True,
    )
    assert request == {
        "command": ["a", "b"],
        "timeout": 300_000,
        "env": {"K": "v", "U": None},
        "cwd": "/tmp",
        "user": "1000:1000",
        "session": "s1",
        "shellState": False,
    }


async def test_no_time_limit_is_not_the_default_one(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    assert (await asked(engine, sandbox, "x", timeout=None))["timeout"] is None


async def test_a_user_may_be_a_number(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    assert (await asked(engine, sandbox, "id", user=1000))["user"] == "1000"


async def test_arguments_of_the_wrong_type_are_named(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    typeless: Any = sandbox
    for name, wrong in {
        "stdin": 5, "env": "A=5", "cwd": 5, "user": 1.5, "session": 5, "encoding": 5, "timeout": []
    }.items():  # fmt: skip
        with pytest.raises(errors.ValidationFailedError) as caught:
            await typeless.exec("true", **{name: wrong})
        assert name in caught.value.message + str(caught.value.context)
    with pytest.raises(errors.ValidationFailedError, match="env"):
        await typeless.set_env_vars("x")
    with pytest.raises(errors.InvalidCommandError):
        await typeless.exec(5)
    with pytest.raises(errors.ValidationFailedError, match="cwd"):
        typeless.exec_stream("true", cwd=5)
    assert engine.seen == []


async def test_a_mistake_of_the_caller_costs_no_request(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    for wrong in ({"timeout": -1}, {"encoding": "nonsense"}, {"session": "a b"}):
        with pytest.raises(errors.ValidationFailedError):
            await sandbox.exec("x", **wrong)
    with pytest.raises(errors.InvalidCommandError):
        sandbox.exec_stream("")
    assert engine.seen == []


async def test_output_is_delivered_as_it_arrives_and_the_result_at_the_end(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    body = out(0, b"a\xe2\x82") + out(3, b"err", Kind.STDERR) + out(6, b"\xac")
    engine.script(EXEC, Answer(body + frame(Kind.EXITED, exit_code=0)))
    seen: list[Any] = []

    async def completed(result: atoll.ExecResult) -> None:
        seen.append(result.exit_code)

    result = await sandbox.exec(
        "x", on_output=lambda *output: seen.append(output), on_complete=completed
    )
    assert seen == [("stdout", "a"), ("stderr", "err"), ("stdout", "€"), 0]
    assert (result.stdout, result.stderr) == ("a€", "err")


async def test_an_error_is_told_to_the_callback_and_raised(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, failing(errors.ContainerUnavailableError("no")))
    seen: list[Any] = []
    with pytest.raises(errors.ContainerUnavailableError) as caught:
        await sandbox.exec("x", on_error=seen.append, on_complete=seen.append)
    assert seen == [caught.value]


async def test_a_callback_that_fails_ends_the_command(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, Answer(out(0, b"x"), hold=True))
    engine.script("DELETE ", Answer())

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await sandbox.exec("x", on_output=broken)
    assert len(engine.requests("DELETE ")) == 1


async def test_check_raises_for_a_code_that_is_not_zero(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, command(exit_code=4))
    assert (await sandbox.exec("x")).exit_code == 4
    with pytest.raises(errors.CommandFailedError) as caught:
        await sandbox.exec("x", check=True)
    assert caught.value.result.exit_code == 4


async def test_a_handle_is_asked_for_without_shell_state(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script(EXEC, command())
    async with await sandbox.spawn("cat", pty=True, cols=100, rows=30):
        pass
    assert engine.requests(EXEC)[0].json() == {
        "command": "cat",
        "timeout": None,
        "openStdin": True,
        "pty": True,
        "cols": 100,
        "rows": 30,
        "shellState": False,
        "turn": False,
    }


async def test_variables_are_set_for_the_sandbox_or_the_session(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("POST /env", Answer())
    engine.script("GET /sessions/s", Answer(b'{"id": "s"}'))
    await sandbox.set_env_vars({"A": "1", "B": None})
    await (await sandbox.get_session("s")).set_env_vars({"A": "2"})
    assert [seen.json() for seen in engine.requests("POST /env")] == [
        {"env": {"A": "1", "B": None}},
        {"env": {"A": "2"}, "session": "s"},
    ]
