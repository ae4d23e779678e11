"""The frames of a watch, without I/O."""

from atoll.sdk._events import EventReader
from atoll.wire.files import WatchEvent


class WatchReader(EventReader[WatchEvent]):
    """Turns the bytes of a watch's answer into its events."""

    def __init__(self) -> None:
        super().__init__(WatchEvent)
