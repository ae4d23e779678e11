"""Reading starts nothing, whatever the operation; only files and variables are read from a running sandbox."""

import re
from typing import Any

import httpx2
import pytest

from atoll.engine.engine import Engine
from atoll.wire import ops
from atoll.wire.keys import Scope
from integration.engine.scripted import World

INSIDE = (ops.FILES, ops.CONTEXTS + "/")
"""What is kept nowhere but in a running sandbox."""

READING = [op for op in ops.TABLE if op.scope is Scope.READ and not op.path.startswith(INSIDE)]
BODIES: dict[str, Any] = {"wait_for_port": {"port": 80}}


async def ask(client: httpx2.AsyncClient, op: "ops.Op[Any, Any]") -> int:
    known = {"namespace": "N", "id": "box", "session": "default", "port": "80"}
    path = re.sub(r"{(\w+)}", lambda match: known.get(match[1], "p"), op.path)
    return (await client.request(op.method, path, json=BODIES.get(op.name))).status_code


@pytest.mark.parametrize("op", READING, ids=lambda op: op.name)
async def test_reading_neither_creates_nor_wakes(
    client: httpx2.AsyncClient, engine: Engine, world: World, op: "ops.Op[Any, Any]"
) -> None:
    assert await ask(client, op) < 500
    assert world.runtime.starts == 0
    sandbox = engine.sandbox("N", "box")
    await sandbox.ensure_running()
    await sandbox.stop()
    assert await ask(client, op) < 500
    assert world.runtime.starts == 1
