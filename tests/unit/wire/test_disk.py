import msgspec

from atoll.wire.disk import Collect, DiskUsage


def test_nothing_is_removed_by_a_request_that_does_not_say_so() -> None:
    assert msgspec.json.decode(b"{}", type=Collect).dry_run


def test_an_account_is_an_iterable_of_its_entries() -> None:
    body = b'{"entries": [{"kind": "volume", "id": "v", "size": 1}], "sizes": {"volume": 1}}'
    told = msgspec.json.decode(body, type=DiskUsage)
    assert [entry.id for entry in told] == ["v"]
    assert len(told) == 1
