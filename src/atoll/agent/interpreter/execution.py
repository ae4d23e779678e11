"""One run of code as an operation: numbered events, replay, callers that come and go.

What a kernel prints and shows becomes frames as those of a command: STDOUT, STDERR, and RESULT,
whose bytes are JSON lines. The outcome is told when the kernel says that it is done and the
pipes of this execution are drained.
"""

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from atoll import errors
from atoll.agent.audience import Audience
from atoll.agent.interpreter.messages import Message
from atoll.agent.journal import Journal
from atoll.agent.loop import Loop, Timer
from atoll.agent.pump import DRAIN, Pump
from atoll.agent.viewer import Viewer
from atoll.wire import frames
from atoll.wire.agent import ORPHAN_GRACE
from atoll.wire.frames import CHUNK, Frame, Kind

_KINDS: Final = (Kind.STDOUT, Kind.STDERR)


class Execution:
    """Takes what a kernel does for one run, tells its callers.

    Args:
        id: of the operation.
        header: of the request.
        on_end: called with the reason when it is to end early (``cancel``, ``timeout``).
        on_pause: called when the kernel has to wait for the callers, or no longer.
        on_settled: called once the outcome was told.
        on_late: called with output that comes after that.
    """

    def __init__(
        self,
        loop: Loop,
        id: str,
        header: dict[str, Any],
        *,
        on_end: Callable[["Execution", str], None],
        on_pause: Callable[[bool], None],
        on_settled: Callable[["Execution"], None],
        on_late: Callable[["Execution", int, bytes], None],
    ) -> None:
        self._loop, self.id, self.header = loop, id, header
        self._on_end, self._on_pause = on_end, on_pause
        self._on_settled, self._on_late = on_settled, on_late
        self._journal = Journal()
        self._audience = Audience(
            loop, self._journal, on_frame=self._on_frame, on_change=self._on_audience
        )
        self._pump, self._shared = Pump(loop, self.take, self._on_drained), False
        self._limit: int | None = header.get("output_limit")
        self._totals = {Kind.STDOUT: 0, Kind.STDERR: 0, Kind.RESULT: 0}
        self._truncated = self._skipped = self._unended = False
        self._orphaned: Timer | None = None
        self._timeout: Timer | None = None
        self._began = 0.0
        self._done: dict[str, Any] | None = None
        self._last = b""
        self.reason: str | None = None  # why it is being ended
        self.count = 0
        self.ended: float | None = None

    @property
    def settled(self) -> bool:
        """Whether its outcome was told."""
        return bool(self._last)

    @property
    def kept(self) -> int:
        """Bytes kept for callers that may attach again."""
        return sum(map(len, self._journal.kept()))

    @property
    def full(self) -> bool:
        """Whether the kernel has to wait for the callers."""
        return self._audience.full

    def add(self, sock: socket.socket, from_offset: int | None, *, quiet: bool = False) -> None:
        """Take over a connection."""
        if self._orphaned:
            self._orphaned.cancel()
            self._orphaned = None
        viewer = self._audience.add(sock, from_offset, quiet=quiet)
        if self._last:
            viewer.send(self._last)
            viewer.finish()

    def begin(self, pid: int, shared: Pump | None = None) -> list[int]:
        """Note the start; return the descriptors the kernel writes to, to be closed here.

        Args:
            shared: what reads the kernel's own output, where it cannot take descriptors.
        """
        theirs = []
        self._pump, self._shared = shared or self._pump, shared is not None
        for kind in () if shared else _KINDS:
            reader, writer = os.pipe2(os.O_CLOEXEC)
            self._pump.add(reader, kind)
            theirs.append(writer)
        self._began = time.monotonic()
        self._audience.tell(self._journal.started(pid))
        if (limit := self.header.get("timeout")) is not None:
            self._timeout = self._loop.later(float(limit), lambda: self.end("timeout"))
        return theirs

    def end(self, reason: str) -> None:
        """Ask for an early end; the first reason counts."""
        if not self.settled and self.reason is None:
            self.reason = reason
            self._on_end(self, reason)

    def result(self, message: Message) -> None:
        """Take a result, or a piece of it; what was printed before it is told before it."""
        if self.settled:
            return
        if message.first:
            self._pump.mark_owed()
            self._pump.read_owed()
            room = None if self._limit is None else self._limit - self._totals[Kind.RESULT]
            self._skipped = room is not None and message.length >= room
        if self._skipped:
            self._truncated = True
            return
        self._unended = not message.last
        data = message.body.replace(b"\n", b" ") + b"\n" * message.last
        for start in range(0, len(data), CHUNK):
            self.take(Kind.RESULT, data[start : start + CHUNK])

    def done(self, told: dict[str, Any]) -> None:
        """The kernel has run the code: tell the outcome when the pipes are drained."""
        self._done = told
        self._pump.mark_owed()
        self._pump.read_owed()
        if self._pump.ended or self._shared:
            self._on_drained()
        else:
            self._loop.later(DRAIN, self._on_drained)

    def died(self, outcome: dict[str, Any] | errors.SandboxError) -> None:
        """The kernel is gone: what it wrote is still told."""
        self._pump.mark_owed()
        self._pump.read_owed()
        if self._unended:
            self.take(Kind.RESULT, b"\n")
        self.settle(outcome)

    def _on_drained(self) -> None:
        if self._done is None or self.settled:
            return
        self._pump.mark_owed()
        self._pump.read_owed()
        if self._pump.owed:
            self._loop.later(DRAIN, self._on_drained)
            return
        self.settle(self.record(self._done))

    def record(self, told: dict[str, Any], *, restarted: bool = False) -> dict[str, Any]:
        """Return the payload of EXITED."""
        count = told.get("count")
        self.count = count if isinstance(count, int) else 0
        failed = told.get("status") != "ok" or self.reason is not None
        return {
            "exit_code": int(failed),
            "signal": None,
            "timed_out": self.reason == "timeout",
            "cancelled": self.reason not in {None, "timeout", "interrupt"},
            "reason": self.reason,
            "restarted": restarted,
            "execution_count": self.count,
            "stdout_bytes": self._totals[Kind.STDOUT],
            "stderr_bytes": self._totals[Kind.STDERR],
            "truncated": self._truncated,
            "duration": round(time.monotonic() - self._began, 6) if self._began else 0.0,
        }

    def settle(self, outcome: dict[str, Any] | errors.SandboxError) -> None:
        """Tell the outcome, once."""
        if self.settled:
            return
        for timer in (self._timeout, self._orphaned):
            if timer:
                timer.cancel()
        if isinstance(outcome, errors.SandboxError):
            self._last = frames.encode_json(Kind.ERROR, outcome.to_wire())
        else:
            self._last = self._journal.exited(outcome)
        self.ended = time.monotonic()
        self._pump.pause(False)
        self._on_settled(self)
        self._audience.finish(self._last)

    def take(self, kind: int, data: bytes) -> None:
        """Take a piece of output."""
        if self.settled:
            self._on_late(self, kind, data)
            return
        stream = Kind(kind)
        before = self._totals[stream]
        self._totals[stream] = before + len(data)
        if self._limit is not None and stream in _KINDS and before + len(data) > self._limit:
            self._truncated = True
            data = data[: max(0, self._limit - before)]
        if data:
            self._audience.tell(self._journal.output(kind, data))
            if self._audience.full:
                self._pause(True)

    def _pause(self, paused: bool) -> None:
        self._pump.pause(paused)
        self._on_pause(paused)

    def _on_frame(self, _: Viewer, frame: Frame) -> None:
        if frame.kind == Kind.CANCEL:
            self.end("cancel")

    def _on_audience(self) -> None:
        if self.settled:
            return
        self._pause(self._audience.full)
        if not self._audience.empty:
            return
        if self.header.get("cancel_on_drop"):
            self.end("cancel")
        elif not self._orphaned:
            self._orphaned = self._loop.later(ORPHAN_GRACE, lambda: self.end("cancel"))


def control(loop: Loop, sock: socket.socket, execution: Execution) -> Viewer:
    """Let a connection send frames to an execution; answer at its END."""

    def on_frame(viewer: Viewer, frame: Frame) -> None:
        if frame.kind == Kind.CANCEL:
            execution.end("cancel")
        elif frame.kind == Kind.END:
            with suppress(OSError):
                viewer.send(frames.encode_json(Kind.REPLY, {"running": not execution.settled}))
            viewer.finish()
        else:
            error = errors.ValidationFailedError(
                "code takes no input", context={"kind": frame.kind}
            )
            viewer.send(frames.encode_json(Kind.ERROR, error.to_wire()))
            viewer.finish()

    return Viewer(loop, sock, on_frame=on_frame)
