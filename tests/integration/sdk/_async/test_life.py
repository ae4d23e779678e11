"""What is sent for each call of a sandbox's life."""

from datetime import timedelta

import atoll
from integration.sdk.engine_double import Answer, EngineDouble

INFO = b"""{"id": "box", "namespace": "Sandbox", "state": "frozen", "generation": 1, "image": "i",
"instanceType": "lite", "isolation": "container", "runtime": "runc", "wanted": {},
"createdAt": "2026-01-01T00:00:00Z", "placementId": "p-1",
"limits": {"memory": 1, "cpu": 1.0, "disk": 1, "pids": 1}}"""


async def test_timers_and_labels_are_options(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    engine.script("PUT /box", Answer(INFO))
    await sandbox.set_sleep_after(timedelta(minutes=1))
    await sandbox.set_keep_alive(True)
    await sandbox.set_labels({"a": "b"})
    assert [seen.json() for seen in engine.seen] == [
        {"sleepAfter": 60_000},
        {"keepAlive": True},
        {"labels": {"a": "b"}},
    ]


async def test_sleep_wake_and_renewal_have_calls_of_their_own(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("POST /sleep", Answer(INFO))
    engine.script("POST /start", Answer(INFO))
    engine.script("POST /activity", Answer(b'{"success": true}'))
    assert (await sandbox.sleep()).state == "frozen"
    await sandbox.wake()
    await sandbox.renew_activity_timeout()
    assert [seen.path.rpartition("/")[2] for seen in engine.seen] == ["sleep", "start", "activity"]


async def test_use_and_placement_are_read(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    limits = b'{"memory": 2, "cpu": 1.0, "disk": 1, "pids": 1}'
    engine.script("GET /metrics", Answer(b'{"memory": 7, "limits": ' + limits + b"}"))
    engine.script("GET /box", Answer(INFO))
    found = await sandbox.metrics()
    assert (found.memory, found.limits.memory, found.pids) == (7, 2, 0)
    assert await sandbox.get_container_placement_id() == "p-1"
