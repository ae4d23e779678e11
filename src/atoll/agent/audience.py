"""All connections of one operation: who is told, who is waited for, who is missing."""

import socket
from collections.abc import Callable
from typing import Final

from atoll.agent.journal import Journal, resume
from atoll.agent.loop import Loop
from atoll.agent.viewer import BACKLOG, Viewer
from atoll.wire import frames
from atoll.wire.agent import HEARTBEAT_INTERVAL
from atoll.wire.frames import Frame, Kind

STALLED: Final = 10.0
"""Seconds after which a process no longer waits for a viewer that reads nothing."""

_HEARTBEAT: Final = frames.encode(Kind.HEARTBEAT)
_LOUD: Final = (Kind.STDOUT, Kind.STDERR, Kind.RESULT)


class Audience:
    """Sends every event to every connection, and says when the command has to wait.

    Args:
        on_frame: called with every frame a connection sends.
        on_change: called when a connection went away or has room again.

    Attributes:
        patient: whether a command waits for a connection that is missing or reads nothing, instead
            of losing output (a process does not: it has a log).
    """

    def __init__(
        self,
        loop: Loop,
        journal: Journal,
        *,
        on_frame: Callable[[Viewer, Frame], None],
        on_change: Callable[[], None],
    ) -> None:
        self._loop, self._journal = loop, journal
        self._on_frame, self._on_change = on_frame, on_change
        self._viewers: list[Viewer] = []
        self._quiet: set[Viewer] = set()
        self._seen = 0
        self._spoke = self._beating = False
        self.patient = True

    @property
    def empty(self) -> bool:
        """Whether nobody is connected."""
        return not self._viewers

    @property
    def full(self) -> bool:
        """Whether reading more output would lose some of it."""
        if self._viewers:
            return any(viewer.full for viewer in self._viewers)
        return self.patient and self._journal.charge - self._seen >= BACKLOG

    def add(self, sock: socket.socket, from_offset: int | None, *, quiet: bool = False) -> Viewer:
        """Take over a connection; with *from_offset* it gets what is kept from there on.

        A *quiet* one is sent no output.
        """
        viewer = Viewer(
            self._loop, sock, on_frame=self._on_frame, on_gone=self._gone, on_room=self._room
        )
        self._viewers.append(viewer)
        if quiet:
            self._quiet.add(viewer)
        if not self._beating:
            self._spoke = True
            self._beat()
        if from_offset is not None:
            for frame in resume(self._journal.kept(), from_offset):
                if not quiet or frame[0] == Kind.STARTED:
                    viewer.send(frame)
        return viewer

    def tell(self, frame: bytes) -> None:
        """Send *frame* to everybody whom it is for."""
        self._spoke = True
        loud = frame[0] in _LOUD
        for viewer in self._viewers:
            if not (loud and viewer in self._quiet):
                viewer.send(frame)

    def finish(self, last: bytes) -> None:
        """Send the last frame, and close each connection once it has everything."""
        self.tell(last)
        for viewer in self._viewers.copy():
            viewer.finish()
        self._sweep()

    def pause(self, paused: bool) -> None:
        """Stop or go on reading from the connections."""
        for viewer in self._viewers:
            viewer.pause(paused)

    def _gone(self, viewer: Viewer) -> None:
        self._seen = self._journal.charge - min(viewer.lost, self._journal.charge)
        self._sweep()
        self._on_change()

    def _room(self, _: Viewer) -> None:
        self._sweep()
        self._on_change()

    def _sweep(self) -> None:
        self._viewers = [viewer for viewer in self._viewers if not viewer.closed]
        self._quiet.intersection_update(self._viewers)

    def _beat(self) -> None:
        """Twice per interval, so that silence never lasts longer than one."""
        if not self.patient:
            for viewer in self._viewers.copy():
                if viewer.stalled > STALLED:
                    viewer.drop()
        self._beating = bool(self._viewers)
        if self._beating:
            for viewer in self._quiet if self._spoke else self._viewers:
                viewer.send(_HEARTBEAT)
            self._spoke = False
            self._loop.later(HEARTBEAT_INTERVAL / 2, self._beat)
