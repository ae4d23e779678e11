from datetime import UTC, datetime
from pathlib import Path

import pytest

from atoll.engine.store import audit
from atoll.engine.store.audit import AuditLog
from atoll.wire.keys import AuditQuery, AuditRecord


def opened(path: Path, limit: int = 1 << 20) -> AuditLog:
    log = AuditLog(path / "audit", limit)
    log.open()
    return log


def record(caller: str = "k", operation: str = "exec", namespace: str = "N") -> AuditRecord:
    return AuditRecord(
        number=0,
        at=datetime.now(UTC),
        caller=caller,
        operation=operation,
        target={"namespace": namespace, "id": "box"},
        status=200,
        request_id="r",
    )


async def numbers(log: AuditLog, **wanted: object) -> list[int]:
    page = await log.read(AuditQuery(**wanted))  # type: ignore[arg-type]
    return [found.number for found in page.records]


async def test_records_are_numbered_and_come_newest_first(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for _ in range(3):
        log.add(record())
    assert await numbers(log) == [3, 2, 1]
    log.close()


async def test_numbers_go_on_in_the_next_engine(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.add(record())
    log.close()
    log = opened(tmp_path)
    log.add(record())
    assert await numbers(log) == [2, 1]
    log.close()


async def test_a_line_cut_short_by_a_crash_costs_only_itself(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.add(record())
    log.add(record())
    log.close()
    file = tmp_path / "audit" / "audit.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    log = opened(tmp_path)
    log.add(record())
    assert await numbers(log) == [2, 1]
    log.close()


async def test_pages_follow_each_other_without_gap_or_repetition(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for _ in range(7):
        log.add(record())
    seen, cursor = [], None
    while True:
        page = await log.read(AuditQuery(limit=3, before=cursor))
        seen += [found.number for found in page.records]
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == [7, 6, 5, 4, 3, 2, 1]
    log.close()


async def test_records_are_found_by_who_what_and_where(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.add(record("a", "exec", "N"))
    log.add(record("b", "exec", "M"))
    log.add(record("a", "mkdir", "M"))
    assert await numbers(log, caller="a") == [3, 1]
    assert await numbers(log, operation="exec") == [2, 1]
    assert await numbers(log, namespace="M", caller="a") == [3]
    log.close()


async def test_what_is_kept_is_bounded_and_the_newest_stay(tmp_path: Path) -> None:
    log = opened(tmp_path, limit=4_000)
    for _ in range(200):
        log.add(record())
    sizes = [file.stat().st_size for file in (tmp_path / "audit").iterdir()]
    assert len(sizes) == 2
    assert sum(sizes) <= 4_000
    found = await numbers(log)
    assert found == list(range(200, 200 - len(found), -1))
    assert len(found) >= 5
    log.close()


async def test_records_longer_than_a_block_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_BLOCK", 7)
    log = opened(tmp_path)
    for _ in range(5):
        log.add(record())
    assert await numbers(log) == [5, 4, 3, 2, 1]
    log.close()


def test_the_files_are_the_owners_alone(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.add(record())
    assert (tmp_path / "audit").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "audit" / "audit.jsonl").stat().st_mode & 0o777 == 0o600
    log.close()


def test_a_disk_that_refuses_does_not_fail_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", full)
    log.add(record())
    log.add(record())
    log.close()
