"""The process that owns one command and its connections.

Forked ahead by the router together with its stub, so that a command waits for neither. It is a
subreaper: whatever the command leaves behind stays below it, and it stays as long as that lives.
"""

import gc
import json
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, Final, NoReturn

from atoll import errors
from atoll.agent import channel, kernel
from atoll.agent.audience import Audience
from atoll.agent.command import Command, Left
from atoll.agent.config import Config
from atoll.agent.descriptors import keep_only, spill
from atoll.agent.isolation import PidNamespace
from atoll.agent.journal import Journal
from atoll.agent.launch import Context
from atoll.agent.logfile import LogFile
from atoll.agent.loop import READ, Loop, Timer
from atoll.agent.memory import give_way
from atoll.agent.output import Output
from atoll.agent.rehearsal import rehearse_start
from atoll.agent.viewer import Viewer
from atoll.wire import frames
from atoll.wire.agent import ORPHAN_GRACE, TIMEOUT_GRACE
from atoll.wire.frames import Frame, Kind

MAX_GROWTH: Final = 4 << 10
"""KiB a supervisor may have grown by and still take another command. The first command alone is
2.4 MiB with the Python of Debian 12: pages of the interpreter that are touched for the first time."""

OOM_SCORE_ADJ: Final = 250
"""Where the agent's memory is used up, a supervisor goes and its command with it, not the router:
with that all of the sandbox would end."""

INLINE_TAIL: Final = 2 << 10
"""Bytes of kept output that are handed to the router in the message itself."""


def supervise(sock: socket.socket, config: Config, namespace: PidNamespace | None) -> NoReturn:
    """Be a supervisor from fork to exit; *sock* leads to the router, *namespace* is where it is.

    One command after the other, each with a fresh stub: that spares the router a fork and the next
    command the first touch of this process's pages.
    """
    code = 1
    try:
        if namespace:
            namespace.enter()
        keep = {0, 1, 2, sock.fileno(), *config.procs, *config.events, *config.devices} - {-1}
        keep_only(keep)
        config = config._replace(subreapers=kernel.become_subreaper())
        give_way(OOM_SCORE_ADJ)
        gc.disable()  # a collection at any time would copy every page it looks at
        gc.freeze()
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + MAX_GROWTH
        supervisor = Supervisor(sock, config)
        rehearse_start(config.devices)
        while supervisor.serve() and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < most:
            del supervisor
            gc.collect()
            keep_only(keep)
            supervisor = Supervisor(sock, config)
            channel.send(sock, {"report": "ready"})
        code = 0
    except BrokenPipeError:  # the router has gone, or has enough that wait
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


class Supervisor:
    """Passes on: messages of the router and frames of callers in, events out."""

    def __init__(self, sock: socket.socket, config: Config) -> None:
        self.loop = Loop()
        self._sock = sock
        self._journal = Journal()
        self._audience = Audience(
            self.loop, self._journal, on_frame=self._on_frame, on_change=self._on_audience
        )
        self._output = Output(self._emit)
        self._command = Command(
            self.loop,
            config,
            self._output,
            on_started=self._on_started,
            on_outcome=self._on_outcome,
            on_childless=self._leave_if_done,
            on_room=lambda: self._audience.pause(False),
        )
        self._log: LogFile | None = None
        self._header: dict[str, Any] = {}
        self._orphaned: Timer | None = None
        self._telling: Timer | None = None
        self._controls: set[Viewer] = set()
        self._last = b""
        self._released = self._alone = False
        self.loop.watch(sock.fileno(), READ, self._on_message)

    def serve(self) -> bool:
        """Handle one command to its last process; return whether the router is still there."""
        self.loop.run()
        self.loop.close()
        self._command.close()
        return not self._alone

    # The router

    def _on_message(self, _: int) -> None:
        try:
            message = channel.receive(self._sock)
        except OSError:
            message = None
        if message is None:
            self._on_router_gone()
            return
        handlers = {
            "run": self._on_run,
            "go": self._on_go,
            "attach": self._on_attach,
            "control": self._on_control,
            "end": self._on_end,
            "release": self._on_release,
        }
        try:
            handlers[message.body["do"]](message)
        except (ValueError, KeyError, TypeError, OSError) as error:
            sys.excepthook(*sys.exc_info())
            self._command.fail(errors.InternalError(f"the command could not be handled: {error}"))

    def _on_run(self, message: channel.Message) -> None:
        self._header = message.body["header"]
        self._audience.patient = not self._header.get("detach")
        self._output.limit = self._header.get("output_limit")
        conn, rest = message.fds[0], message.fds[1:]
        logs = message.body["logs"]
        if logs:
            self._log = LogFile(rest[0], int(self._header["log_limit"]))
            self._journal.forget()
        quiet = bool(self._header.get("quiet"))
        self._audience.add(socket.socket(fileno=conn), None, quiet=quiet)
        self._command.accept(self._header)
        if message.body["context"]:
            self._command.begin(Context.of(message.body["context"], rest[logs:]))

    def _on_go(self, message: channel.Message) -> None:
        self._command.begin(Context.of(message.body["context"], message.fds))

    def _on_attach(self, message: channel.Message) -> None:
        if self._orphaned:
            self._orphaned.cancel()
        viewer = self._audience.add(
            socket.socket(fileno=message.fds[0]),
            int(message.body["from_offset"]),
            quiet=bool(message.body["quiet"]),
        )
        if self._last:
            viewer.send(self._last)
            viewer.finish()
        else:
            self._command.pause(self._audience.full)

    def _on_control(self, message: channel.Message) -> None:
        viewer = Viewer(
            self.loop,
            socket.socket(fileno=message.fds[0]),
            on_frame=self._on_control_frame,
            on_gone=self._on_control_left,
            on_room=self._on_control_left,
        )
        self._controls.add(viewer)
        if self._last:
            self._dismiss(viewer)

    def _on_end(self, message: channel.Message) -> None:
        if self._header:  # else it was meant for the last command, of which nothing is left
            number = message.body.get("signal") or signal.SIGTERM
            self._command.end(message.body["reason"], message.body["grace"], number)

    def _on_release(self, _: channel.Message) -> None:
        """The router knows the outcome: it sends no more connections here."""
        self._released = True
        self._leave_if_done()

    def _on_router_gone(self) -> None:
        """The sandbox ends: on a bare host there is no pid namespace that would end the tree."""
        self.loop.forget(self._sock.fileno())
        self._released = self._alone = True
        self._command.end("agent", 0)
        self._leave_if_done()

    # The callers

    def _on_frame(self, viewer: Viewer, frame: Frame) -> None:
        """Do what a caller of the command sends; nonsense is left alone, its output matters more."""
        with suppress(errors.ValidationFailedError):
            self._obey(viewer, frame)

    def _on_control_frame(self, viewer: Viewer, frame: Frame) -> None:
        try:
            if frame.kind == Kind.STDIN and not self._command.takes_input:
                raise errors.ValidationFailedError(
                    "the command was started without standard input",
                    suggestion="start it with stdin or on a terminal",
                )
            self._obey(viewer, frame)
        except errors.ValidationFailedError as error:
            viewer.send(frames.encode_json(Kind.ERROR, error.to_wire()))
            viewer.finish()
        if frame.kind == Kind.END:
            viewer.send(frames.encode_json(Kind.REPLY, {}))
            viewer.finish()

    def _on_control_left(self, viewer: Viewer) -> None:
        if viewer.closed:
            self._controls.discard(viewer)
            self._leave_if_done()

    def _dismiss(self, viewer: Viewer) -> None:
        """Answer somebody who still feeds or steers a command that has ended."""
        viewer.send(frames.encode_json(Kind.REPLY, {"running": False}))
        viewer.finish()

    def _obey(self, viewer: Viewer, frame: Frame) -> None:
        command = self._command
        try:
            if frame.kind == Kind.CANCEL:
                command.end("cancel", TIMEOUT_GRACE)
            elif frame.kind == Kind.STDIN:
                viewer.pause(command.write(frame.payload))
            elif frame.kind == Kind.STDIN_CLOSE:
                command.close_stdin()
            elif frame.kind == Kind.RESIZE:
                size = json.loads(frame.payload)
                command.resize(int(size["cols"]), int(size["rows"]))
            elif frame.kind == Kind.SIGNAL:
                wanted = json.loads(frame.payload)
                number = signal.Signals[wanted["signal"]]
                if (grace := wanted.get("grace")) is not None:
                    command.end("kill", float(grace), number)
                else:
                    command.signal(number, whole_tree=bool(wanted.get("tree")))
        except (ValueError, KeyError, TypeError) as error:
            raise errors.ValidationFailedError(
                f"malformed frame of kind {frame.kind}: {error}"
            ) from error

    def _on_audience(self) -> None:
        if self._last:
            self._leave_if_done()
            return
        self._command.pause(self._audience.full)
        if not self._audience.empty or self._header.get("detach"):
            return
        if self._header.get("cancel_on_drop"):
            self._command.end("cancel", TIMEOUT_GRACE)
        elif not self._orphaned:
            self._orphaned = self.loop.later(
                ORPHAN_GRACE, lambda: self._command.end("cancel", TIMEOUT_GRACE)
            )

    # The command

    def _on_started(self, pid: int) -> None:
        self._telling = self.loop.later(0, lambda: self._report({"report": "started", "pid": pid}))
        self._audience.tell(self._logged(self._journal.started(pid), 0))

    def _emit(self, kind: int, data: bytes) -> None:
        start = self._journal.offset
        self._audience.tell(self._logged(self._journal.output(kind, data), start))
        if self._audience.full:
            self._command.pause(True)

    def _logged(self, frame: bytes, offset: int) -> bytes:
        if self._log:
            self._log.append(frame, offset)
        return frame

    def _on_outcome(self, outcome: dict[str, Any] | errors.SandboxError, left: Left | None) -> None:
        """Tell the router before the callers: who reads EXITED may ask for the next at once."""
        if self._telling:
            self._telling.cancel()
        if isinstance(outcome, errors.SandboxError):
            self._last = frames.encode_json(Kind.ERROR, outcome.to_wire())
        else:
            self._last = self._journal.exited(outcome)
        self._logged(self._last, self._journal.offset)
        body: dict[str, Any] = {"report": "ended", "last": self._last.decode("latin-1")}
        files: dict[str, int] = {}
        tail = b"".join(self._journal.kept())
        if len(tail) <= INLINE_TAIL:
            body["tail"] = tail.decode("latin-1")
        else:
            files["tail"] = spill(tail)
        if left and left.ended:
            body["shell"] = {"ended": True}
        elif left and left.state:
            body["shell"] = {"cwd": left.cwd}
            files["state"] = spill(left.state)
        self._report({**body, "files": list(files)}, *files.values())
        for fd in files.values():
            os.close(fd)
        self._audience.finish(self._last)
        for viewer in self._controls.copy():
            self._dismiss(viewer)
        self._leave_if_done()

    def _report(self, body: dict[str, Any], *fds: int) -> None:
        try:
            channel.send(self._sock, body, fds)
        except OSError:
            self._on_router_gone()

    def _leave_if_done(self) -> None:
        told = self._audience.empty and not self._controls
        if self._released and told and self._command.idle:
            self.loop.stop()
