import pytest

from atoll.errors import VersionMismatchError
from atoll.sdk._events import EventReader
from atoll.wire import frames
from atoll.wire.frames import Kind
from atoll.wire.sandbox import SandboxEvent

EVENT = frames.encode_json(Kind.EVENT, {"seq": 1, "type": "running", "at": "2026-01-01T00:00:00Z"})
END = frames.encode_json(Kind.END, {})


def test_events_come_out_whole_wherever_the_bytes_are_cut() -> None:
    data = EVENT + frames.encode(Kind.HEARTBEAT, b"") + EVENT + END
    reader = EventReader(SandboxEvent)
    found = [event for cut in data for event in reader.feed(bytes([cut]))]
    assert [event.type for event in found] == ["running", "running"]
    assert reader.finished


def test_without_an_end_the_stream_is_not_finished() -> None:
    reader = EventReader(SandboxEvent)
    assert len(list(reader.feed(EVENT))) == 1
    assert not reader.finished


def test_what_is_no_event_is_an_error() -> None:
    with pytest.raises(VersionMismatchError):
        list(EventReader(SandboxEvent).feed(frames.encode(Kind.EVENT, b"{}")))
