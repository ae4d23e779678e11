"""The frames of a stream of events, without I/O."""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

from atoll import errors
from atoll.wire import frames
from atoll.wire.frames import Kind

EventT = TypeVar("EventT")


class EventReader(Generic[EventT]):
    """Turns the bytes of an answer into events; frames of unknown kinds are skipped.

    Args:
        kind: of the events.
    """

    def __init__(self, kind: type[EventT]) -> None:
        self.finished = False
        self._kind = kind
        self._frames = frames.Decoder()

    def feed(self, data: bytes) -> Iterator[EventT]:
        """Yield the events completed by *data*.

        Raises:
            SandboxError: the error that ended the stream.
            VersionMismatchError: this is not the encoding of events.
        """
        try:
            for frame in self._frames.feed(data):
                if frame.kind == Kind.EVENT:
                    yield msgspec.json.decode(frame.payload, type=self._kind)
                elif frame.kind == Kind.ERROR:
                    raise errors.from_wire(msgspec.json.decode(frame.payload, type=dict[str, Any]))
                elif frame.kind == Kind.END:
                    self.finished = True
        except (frames.FrameError, msgspec.MsgspecError) as error:
            raise errors.VersionMismatchError(f"malformed stream of events: {error}") from error
