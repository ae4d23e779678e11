"""Places where a test has the engine die as by ``kill -9``. In production they do nothing.

Each lies right behind something durable or visible: a write to the store, a step of a start or its
undo, a word to the agent. What a crash there leaves is what the next engine must get along with.
"""

import os
import signal
from collections.abc import Iterable
from typing import Final

from atoll.settings import FaultSettings

STEPS: Final = (
    "directory", "ids", "claims", "image", "layer", "copies", "network", "runtime", "rootfs",
    "files", "volumes", "container", "hello",
)  # fmt: skip
"""Names of the steps of `steps.STEPS`; a test compares them."""

_UNDONE: Final = ("directory", "ids", "claims", "copies", "network", "rootfs", "container")


def _named(prefix: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{prefix}.{name}" for name in names)


POINTS: Final = (
    *_named("create", ("recorded",)),
    *_named("start", ("recorded", *STEPS, "running", "sessions", "processes")),
    *_named("exec", ("asked", "running", "ended")),
    *_named("sleep", ("recorded", "sessions", "shut_down", "removed")),
    *_named("freeze", ("recorded", "paused")),
    *_named("thaw", ("running",)),
    *_named("destroy", ("recorded", "processes", "removed", "files")),
    *_named("remove", _UNDONE),
    *_named("warm", ("recorded", "made")),
    *_named("assign", ("named", "recorded")),
)
"""Every point there is. A wake passes those of a start."""


KEPT: Final = (
    *_named("snapshot", ("frozen", "kept", "held", "recorded", "forgotten")),
    *_named("copy", ("made",)),
    *_named("fork", ("recorded",)),
    *_named("restore", ("stopped", "recorded")),
    *_named("backup", ("writing", "finished", "written", "recorded", "forgotten")),
    *_named("unpack", ("sending", "sent")),
    *_named("share", ("unpacked", "kept", "shared", "sent")),
    *_named("import", ("unpacked", "kept")),
    *_named("volume", ("made", "recorded", "forgotten")),
    *_named("resize", ("limited", "recorded")),
    *_named("publish", ("copied", "recorded")),
    *_named("contents", ("removed",)),
    *_named("mount", ("recorded", "served", "attached")),
    *_named("unmount", ("detached", "stopped")),
    *_named("tunnel", ("started", "recorded")),
)
"""Points of what is kept beside sandboxes: calls that ordinary load does not make."""


class Faults:
    """Ends this process at a point, if the settings name one.

    Args:
        settings: which point, and at which passage of it.
    """

    def __init__(self, settings: FaultSettings) -> None:
        self._point = settings.point
        self._left = settings.passage

    def at(self, point: str) -> None:
        """Die here, if this is the place and the time."""
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
