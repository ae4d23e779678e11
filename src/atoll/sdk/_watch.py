"""The frames of a watch, without I/O."""

from collections.abc import Iterator
from typing import Any

import msgspec

from atoll import errors
from atoll.wire import frames
from atoll.wire.files import WatchEvent
from atoll.wire.frames import Kind


class WatchReader:
    """Turns the bytes of a watch's answer into events; frames of unknown kinds are skipped."""

    def __init__(self) -> None:
        self.finished = False
        self._frames = frames.Decoder()

    def feed(self, data: bytes) -> Iterator[WatchEvent]:
        """Yield the events completed by *data*.

        Raises:
            SandboxError: the error that ended the watch.
            VersionMismatchError: this is not the encoding of a watch.
        """
        try:
            for frame in self._frames.feed(data):
                if frame.kind == Kind.EVENT:
                    yield msgspec.json.decode(frame.payload, type=WatchEvent)
                elif frame.kind == Kind.ERROR:
                    raise errors.from_wire(msgspec.json.decode(frame.payload, type=dict[str, Any]))
                elif frame.kind == Kind.END:
                    self.finished = True
        except (frames.FrameError, msgspec.MsgspecError) as error:
            raise errors.VersionMismatchError(f"malformed stream of a watch: {error}") from error
