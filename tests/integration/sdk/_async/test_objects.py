import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import atoll
from atoll.errors import ValidationFailedError
from integration.sdk.engine_double import Answer, EngineDouble

SCHEDULE = {"id": "s", "method": "f", "payload": {"$": "bytes", "v": "AA=="}, "time": "2100-01-01T00:00:00Z"}  # fmt: skip


async def test_a_call_sends_its_arguments_and_returns_the_value(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("POST /call", Answer(b'{"value": {"$": "tuple", "v": [1]}}'))
    assert await sandbox.call("f", b"\0", a=(1, 2)) == (1,)
    assert engine.requests("POST /call")[0].json() == {
        "method": "f",
        "args": [{"$": "bytes", "v": "AA=="}],
        "kwargs": {"a": {"$": "tuple", "v": [1, 2]}},
    }


async def test_what_is_no_data_is_refused_before_it_is_sent(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    calls: Any = [
        sandbox.call("f", object()),
        sandbox.call("f", a=object()),
        sandbox.schedule(1, "f", object()),
        sandbox.schedule("soon", "f"),
        sandbox.schedule(datetime(2100, 1, 1), "f"),  # noqa: DTZ001
    ]
    for call in calls:
        with pytest.raises(ValidationFailedError):
            await call
    assert engine.requests("POST /") == []


async def test_schedules_are_made_listed_and_taken_back(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("POST /schedules", Answer(json.dumps(SCHEDULE).encode()))
    engine.script("GET /schedules", Answer(json.dumps({"schedules": [SCHEDULE]}).encode()))
    engine.script("DELETE /schedules/s", Answer())
    made = await sandbox.schedule("5m", "f", b"\0")
    assert made.payload == b"\0"
    await sandbox.schedule(timedelta(seconds=1), "f")
    await sandbox.schedule(datetime(2100, 1, 1, tzinfo=UTC), "f")
    first, second, third = (seen.json() for seen in engine.requests("POST /schedules"))
    assert (first["delay"], second["delay"], third["at"]) == (
        300_000,
        1_000,
        "2100-01-01T00:00:00Z",
    )
    assert await sandbox.list_schedules() == [made]
    await sandbox.cancel_schedule("s")


def test_blocking_code_calls_methods_too(
    engine: EngineDouble, blocking: "atoll.sync.Sandbox"
) -> None:
    engine.script("POST /call", Answer(b'{"value": 5}'))
    assert blocking.call("f") == 5
