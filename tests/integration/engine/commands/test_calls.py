import asyncio
from typing import Any

import pytest

from atoll.engine.commands import calls
from atoll.engine.engine import Engine
from atoll.errors import OperationNotFoundError
from atoll.wire.frames import Kind
from atoll.wire.process import ExecRequest
from atoll.wire.sandbox import SandboxOptions
from integration.engine.scripted import World


@pytest.mark.parametrize(
    ("request_", "option", "session"),
    [
        (ExecRequest(command="x"), None, "default"),
        (ExecRequest(command=["x"]), None, None),
        (ExecRequest(command="x", shell_state=False), None, None),
        (ExecRequest(command="x"), False, None),
        (ExecRequest(command="x"), True, "default"),
    ],
)
async def test_only_shell_text_runs_in_the_default_session(
    engine: Engine, request_: ExecRequest, option: bool | None, session: str | None
) -> None:
    sandbox = engine.sandbox("N", "box")
    await sandbox.configure(SandboxOptions(enable_default_session=option))
    assert calls.default_session(sandbox, request_) == session


async def test_what_needs_a_running_command_wakes_nothing(engine: Engine, world: World) -> None:
    async def nothing() -> Any:
        yield b""

    sandbox = engine.sandbox("N", "box")
    with pytest.raises(OperationNotFoundError):
        await calls.feed(sandbox, "op", nothing(), close=True)
    with pytest.raises(OperationNotFoundError):
        await calls.control(sandbox, "op", Kind.CANCEL)
    await asyncio.sleep(0)
    assert world.runtime.starts == 0
