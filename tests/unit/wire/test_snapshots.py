from datetime import UTC, datetime

import msgspec
import pytest

from atoll.wire.snapshots import Diff, Fork, Snapshot, SnapshotPage, TakeSnapshot

JSON = (
    '{"id":"s","namespace":"N","sandbox":"box","createdAt":"2026-01-01T00:00:00Z","size":5,'
    '"expiresAt":"2026-02-01T00:00:00Z","unknown":1}'
)


def test_a_snapshot_of_a_newer_engine_is_read() -> None:
    found = msgspec.json.decode(JSON, type=Snapshot)
    assert (found.size, found.labels, found.parent) == (5, {}, None)
    assert found.expires_at == datetime(2026, 2, 1, tzinfo=UTC)


def test_pages_and_comparisons_are_their_entries() -> None:
    page = SnapshotPage(snapshots=[msgspec.json.decode(JSON, type=Snapshot)])
    assert ([found.id for found in page], len(page)) == (["s"], 1)
    assert (list(Diff(changes=[])), len(Diff(changes=[]))) == ([], 0)


def test_requests_are_short_and_strict() -> None:
    assert msgspec.json.encode(Fork()) == b"{}"
    assert msgspec.json.encode(TakeSnapshot(ttl_ms=5)) == b'{"ttl":5}'
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode('{"cuont":2}', type=Fork)
