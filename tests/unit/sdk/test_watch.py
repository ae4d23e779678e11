import json

import pytest

from atoll import errors
from atoll.sdk._watch import WatchReader
from atoll.wire import frames
from atoll.wire.frames import Kind

EVENT = {"type": "create", "path": "/w/f", "timestamp": "2026-01-01T00:00:00Z"}


def test_events_are_read_however_they_are_cut() -> None:
    data = (
        frames.encode_json(Kind.EVENT, EVENT)
        + frames.encode(Kind.HEARTBEAT)
        + frames.encode_json(Kind.END, {})
    )
    for cut in range(len(data)):
        reader = WatchReader()
        events = [*reader.feed(data[:cut]), *reader.feed(data[cut:])]
        assert [(event.type, event.path) for event in events] == [("create", "/w/f")]
        assert reader.finished


def test_an_error_is_raised() -> None:
    envelope = errors.WatchStartError("no more").to_wire()
    with pytest.raises(errors.WatchStartError):
        list(WatchReader().feed(frames.encode_json(Kind.ERROR, envelope)))


@pytest.mark.parametrize(
    "data", [frames.encode(Kind.EVENT, b"{"), b"\1\xff\xff\xff\xff", frames.encode(Kind.ERROR)]
)
def test_what_is_no_watch_is_said(data: bytes) -> None:
    with pytest.raises(errors.VersionMismatchError):
        list(WatchReader().feed(data))


def test_unknown_fields_of_a_newer_engine_are_ignored() -> None:
    data = frames.encode(Kind.EVENT, json.dumps(EVENT | {"news": 1}).encode())
    assert next(WatchReader().feed(data)).type == "create"
