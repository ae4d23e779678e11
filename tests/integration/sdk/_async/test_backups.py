import json
from typing import Any

import pytest

import atoll
from atoll import errors
from integration.sdk.engine_double import Answer, EngineDouble

MADE = {
    "id": "b1", "dir": "/tmp", "namespace": "Sandbox", "sandbox": "box",
    "createdAt": "2026-01-01T00:00:00Z",
}  # fmt: skip
DONE = {"id": "b1", "dir": "/tmp", "files": 1, "size": 2}


def answer(body: Any) -> Answer:
    return Answer(json.dumps(body).encode())


async def test_a_backup_is_a_plain_value_that_can_be_given_back(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("POST /backups", answer(MADE))
    engine.script("POST /backups/restore", answer(DONE))
    made = await sandbox.create_backup(dir="/tmp", excludes=["a"], gitignore=True, ttl="1h")
    assert engine.seen[0].json() == {
        "dir": "/tmp", "ttl": 3_600_000, "gitignore": True, "excludes": ["a"],
    }  # fmt: skip
    for backup in (made, json.loads(json.dumps(made.to_dict())), "b1"):
        assert (await sandbox.restore_backup(backup, dir="/tmp/x")).files == 1
    assert [seen.json() for seen in engine.seen[1:]] == [{"backup": "b1", "dir": "/tmp/x"}] * 3


async def test_a_value_goes_where_it_says_even_if_its_owner_changed_that(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    """Else what was made for another directory would replace the first one."""
    engine.script("POST /backups/restore", answer(DONE))
    for backup in (MADE | {"dir": "/tmp/other"}, {"id": "b1"}, "b1"):
        await sandbox.restore_backup(backup)
    assert [seen.json() for seen in engine.seen] == [
        {"backup": "b1", "dir": "/tmp/other"}, {"backup": "b1"}, {"backup": "b1"},
    ]  # fmt: skip


@pytest.mark.parametrize("backup", [None, 5, "", {}, {"id": 5}, {"id": "b1", "dir": 5}])
async def test_what_is_no_backup_costs_no_request(
    engine: EngineDouble, sandbox: atoll.Sandbox, backup: Any
) -> None:
    with pytest.raises(errors.InvalidBackupConfigError):
        await sandbox.restore_backup(backup)
    assert not engine.seen
