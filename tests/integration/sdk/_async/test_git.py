import json

import pytest

import atoll
from atoll import errors
from integration.sdk.engine_double import Answer, EngineDouble

ROUTE = "POST /git/checkout"
DONE = {
    "success": True, "url": "https://h/r", "path": "/workspace/r", "branch": "main",
    "commit": "c", "timestamp": "2026-01-01T00:00:00Z",
}  # fmt: skip


async def test_what_is_asked_for_is_sent(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    engine.script(ROUTE, Answer(json.dumps(DONE).encode()))
    done = await sandbox.git_checkout(
        "https://h/r", branch="main", target_dir="x", depth=1, clone_timeout="30s"
    )
    assert (done.path, done.branch, done.commit) == ("/workspace/r", "main", "c")
    assert engine.seen[0].json() == {
        "url": "https://h/r", "branch": "main", "targetDir": "x", "depth": 1,
        "cloneTimeout": 30_000,
    }  # fmt: skip
    assert "idempotency-key" in engine.seen[0].headers
    await sandbox.git_checkout("https://h/r", clone_timeout=None)
    assert engine.seen[1].json()["cloneTimeout"] is None


async def test_a_wrong_time_limit_costs_no_request(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    with pytest.raises(errors.ValidationFailedError):
        await sandbox.git_checkout("https://h/r", clone_timeout=0)
    assert not engine.seen
