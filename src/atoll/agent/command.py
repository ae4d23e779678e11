"""One command: started through its stub, fed, timed, ended, and reported when all is read.

The order of events at the end is the promise of this file: the exit status comes from `wait`, and
the outcome is told after every byte the command wrote.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from atoll import errors
from atoll.agent import checks, counters, launch, statefile, terminal, tree, users
from atoll.agent.config import Config
from atoll.agent.dump import Dump
from atoll.agent.ending import Ending
from atoll.agent.feeder import Feeder
from atoll.agent.forked import Stub
from atoll.agent.loop import READ, Loop, Timer
from atoll.agent.output import Output
from atoll.agent.pump import DRAIN, Pump
from atoll.wire.agent import TIMEOUT_GRACE
from atoll.wire.frames import Kind

TERM: Final = signal.SIGTERM
_PATIENCE: Final = 0.003
"""Seconds after which a command that neither ended nor failed is looked at."""

_WAKE: Final = 0.005

_ORPHANS: Final = 0.2
_ORPHANS_MOST: Final = 1.0
"""Seconds between two looks at orphans that this process is not told of: at first, and at most."""

_ROUND: Final = 64
"""Children looked at before everything else has its turn."""

_NEVER_STARTED: Final = {"session": errors.SessionDestroyedError}


class Left(NamedTuple):
    """What a command left of its session's shell."""

    ended: bool
    cwd: str
    state: bytes  # empty: it stays as it was


class Command:
    """Runs what a request asks for.

    Args:
        on_started: called with the pid once the program was executed.
        on_outcome: called once, with the exit record or the reason why there is none, and with
            what is to become of the session's shell (None: it stays as it is).
        on_childless: called when the last process of the tree is gone.
        on_room: called when standard input takes more again.
    """

    def __init__(
        self,
        loop: Loop,
        config: Config,
        output: Output,
        *,
        on_started: Callable[[int], None],
        on_outcome: Callable[[dict[str, Any] | errors.SandboxError, Left | None], None],
        on_childless: Callable[[], None],
        on_room: Callable[[], None],
    ) -> None:
        self._loop, self._config, self._output = loop, config, output
        self._on_started, self._on_outcome = on_started, on_outcome
        self._on_childless, self._on_room = on_childless, on_room
        self._pump = Pump(loop, output.take, self._settle)
        self._ending = Ending(loop, self._on_stuck)
        self._oom = counters.oom_kills(config.memory_events)
        self._refused = counters.refused_processes(config.pids_events)
        self._stub = Stub(config)
        self._header: dict[str, Any] = {}
        self._feeder: Feeder | None = None
        self._terminal: tuple[int, int] | None = None
        self._plan: launch.Plan | None = None
        self._dump: Dump | None = None
        self._room = 0  # bytes that a state may take
        self._timeout: Timer | None = None
        self._began = self._took = 0.0
        self._begun = False  # the stub was told what to become
        self._running = False  # and is known to have become it
        self._status: int | None = None
        self._drained = False
        self._settled = False
        self._childless = self._waking = False
        self._looking: Timer | None = None
        self._look = _ORPHANS
        loop.on_child(self._reap)
        loop.soon(self._reap)

    def close(self) -> None:
        """Let a stub that was never used go."""
        self._stub.sock.close()

    # From the request to the running program

    def accept(self, header: dict[str, Any]) -> None:
        """Take the request; standard input is taken from now on, also while it waits its turn."""
        self._header = header
        self._attempt(self._prepare)

    def begin(self, context: launch.Context) -> None:
        """Start the program."""
        if not self._config.subreapers:
            self._ending.session = self._stub.pid
        if not self._settled:
            self._attempt(lambda: self._execute(context))

    def _attempt(self, step: Callable[[], None]) -> None:
        """Take a step of the start; whatever goes wrong in it is the command's outcome."""
        try:
            step()
        except errors.SandboxError as error:
            self._settle_with(error)
        except Exception as error:
            sys.excepthook(*sys.exc_info())
            self._settle_with(errors.InternalError(f"the command could not be started: {error}"))
            if self._begun:
                self._ending.begin("agent", 0)

    def _prepare(self) -> None:
        if self._childless:  # the kernel took the waiting stub
            self._stub = Stub(self._config)
            self._childless = False
        checks.check(self._header)
        self._connect()

    def _connect(self) -> None:
        stub = self._stub
        if self._header.get("pty"):
            size = int(self._header.get("cols") or 80), int(self._header.get("rows") or 24)
            self._terminal = _open_terminal(self._config, *size)
            stub.use_terminal(*self._terminal)
        elif not self._header.get("stdin"):
            stub.use_null()
            return
        self._feeder = Feeder(self._loop, stub.stdin, self._on_room)

    def _execute(self, context: launch.Context) -> None:
        user = users.read(self._header.get("user") or context.user)
        plan = self._plan = launch.plan(self._header, context, user, self._config.devices.sink)
        self._room = context.room
        if plan.dump is not None:
            self._dump = Dump(self._loop, plan.dump)
        if self._terminal:
            terminal.give(self._stub.theirs[0], user.uid, user.gid)
        self._oom.mark()
        self._refused.mark()
        self._begun, self._began = True, time.monotonic()
        self._loop.later(_PATIENCE, self._watch_stub)
        if (limit := self._header.get("timeout")) is not None:
            self._timeout = self._loop.later(limit, lambda: self.end("timeout", TIMEOUT_GRACE))
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # killed: `_ended` reports that
                self._stub.run(plan.message(user, tty=self._terminal is not None), plan.files)
        finally:
            plan.close()

    def _watch_stub(self) -> None:
        """A short command has ended by now: waking up for its start would only have slowed it."""
        if self._stub.sock.fileno() >= 0 and not self._settled:
            self._loop.watch(self._stub.sock.fileno(), READ, lambda _: self._on_stub())

    def _on_stub(self) -> None:
        sock = self._stub.sock
        if sock.fileno() < 0 or not self._stub.progress():
            return
        self._loop.forget(sock.fileno())
        sock.close()
        if self._stub.report and self._plan:
            self._settle_with(launch.failure(self._stub.report, self._plan.argv))
        elif not self._stub.ready and self._ending.reason != "timeout":
            self._settle_with(self._never_started(self._ending.reason or "its process was killed"))
        else:
            self._started()

    def _never_started(self, reason: str) -> errors.SandboxError:
        kind = _NEVER_STARTED.get(reason, errors.OperationInterruptedError)
        return kind(f"the command was ended before it started ({reason})")

    def _started(self) -> None:
        self._running = True
        self._on_started(self._stub.pid)
        self._pump.add(self._stub.stdout, Kind.STDOUT)
        if not self._terminal:
            self._pump.add(self._stub.stderr, Kind.STDERR)

    # While it runs

    @property
    def idle(self) -> bool:
        """Whether the outcome was told and nothing of the tree lives."""
        return self._settled and (self._childless or not self._begun)

    def write(self, data: bytes) -> bool:
        """Feed standard input; return whether the caller has to wait now."""
        if self._feeder:
            self._feeder.write(data)
        return bool(self._feeder and self._feeder.full)

    def close_stdin(self) -> None:
        """End standard input (on a terminal: type its end-of-file character)."""
        if self._feeder and self._terminal:
            self._feeder.write(terminal.end_of_input(self._terminal[0]))
        elif self._feeder:
            self._feeder.end()

    @property
    def takes_input(self) -> bool:
        """Whether the request asked for a standard input that can be fed."""
        return self._feeder is not None

    def resize(self, cols: int, rows: int) -> None:
        """Tell the terminal its size; without one nothing happens."""
        if self._terminal:
            with suppress(OSError):
                terminal.resize(self._terminal[0], cols, rows)

    def signal(self, number: int, *, whole_tree: bool) -> None:
        """Send a signal to the command, or to everything it started."""
        if whole_tree:
            tree.signal_all(os.getpid(), number, self._ending.session)
        elif self._running and self._status is None:
            os.kill(self._stub.pid, number)

    def pause(self, paused: bool) -> None:
        """Stop or go on reading the output."""
        self._pump.pause(paused)

    def fail(self, error: errors.SandboxError) -> None:
        """Report *error* if the command has not begun; a running one is not harmed."""
        if not self._begun:
            self._settle_with(error)

    def end(self, reason: str, grace: float, number: int = TERM) -> None:
        """End the whole tree: signal *number*, *grace* seconds, KILL."""
        if not self._begun:
            self._settle_with(self._never_started(reason))
        elif not self._childless:
            self._ending.begin(reason, grace, number)

    # Its end

    def _reap(self) -> None:
        try:
            for _ in range(_ROUND):
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
                if not pid:
                    return
                if os.WIFSTOPPED(status):
                    self._stopped(pid)
                elif pid == self._stub.pid:
                    self._ended(status)
            self._loop.soon(self._reap)
        except ChildProcessError:
            if self._has_orphans():
                self._look_again()
                return
            self._childless = True
            self._ending.done()
            self._settle()
            self._on_childless()

    def _has_orphans(self) -> bool:
        """Whether something of the command lives on that is no child of ours: see `tree`."""
        if self._config.subreapers or not self._begun:
            return False
        return bool(tree.descendants(os.getpid(), self._stub.pid))

    def _look_again(self) -> None:
        if self._looking:
            self._looking.cancel()
        self._looking = self._loop.later(self._look, self._reap)
        self._look = min(2 * self._look, _ORPHANS_MOST)

    def _stopped(self, pid: int) -> None:
        """A command may be stopped, and stays so; the stub that is to become it may not."""
        if pid == self._stub.pid and self._begun:
            self._on_stub()
        if pid == self._stub.pid and not self._running and not self._waking:
            self._waking = True  # a little later: who stops it in a loop must not keep us busy
            self._loop.later(_WAKE, self._wake)

    def _wake(self) -> None:
        self._waking = False
        if not self._running and not self._childless:
            tree.send(self._stub.pid, signal.SIGCONT)

    def _ended(self, status: int) -> None:
        if not self._header:
            return
        self._on_stub()  # it may have executed and ended before its socket was looked at
        if not self._running:
            return
        self._status = status
        self._took = time.monotonic() - self._began
        self._pump.mark_owed()
        self._pump.read_owed()
        self._loop.later(DRAIN, self._on_drained)
        if self._timeout:
            self._timeout.cancel()
        self._settle()

    def _on_drained(self) -> None:
        """What came in time counts, also where this process was kept from reading it till now."""
        if not self._settled:
            self._pump.mark_owed()
            self._pump.read_owed()
        self._drained = True
        self._settle()

    def _settle(self) -> None:
        if self._settled or self._status is None:
            return
        if self._ending.reason and not self._childless:
            return
        if self._pump.ended or (self._drained and not self._pump.owed):
            self._settle_with(*self._result(self._status))

    def _settle_with(
        self, outcome: dict[str, Any] | errors.SandboxError, left: Left | None = None
    ) -> None:
        if self._settled:
            return
        self._settled = True
        self._pump.divert()
        if self._feeder:
            self._feeder.close()
        if self._dump:
            self._dump.close()
        self._on_outcome(outcome, left)

    def _on_stuck(self) -> None:
        if self._status is None:
            self._settle_with(errors.ProcessError("the command could not be killed"))
        else:
            self._settle_with(*self._result(self._status))

    def _result(self, status: int) -> tuple[dict[str, Any], Left | None]:
        """Return the exit record and the shell's; one that was ended keeps its state of before."""
        record = self._record(status)
        if not self._plan or not self._dump:
            return record, None
        if self._ending.reason:
            return {**record, "state_saved": False}, None
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        shell = self._plan.outcome(self._dump.take(), code)
        ended, state = shell.session_ended, b""
        if shell.state_saved and shell.state:
            state = statefile.encode(shell.state)
        saved = 0 < len(state) <= self._room
        cwd = statefile.from_latin(shell.state["cwd"]) if saved and shell.state else ""
        left = Left(ended, cwd, state if saved else b"")
        return {**record, "session_ended": ended, "state_saved": saved}, left

    def _record(self, status: int) -> dict[str, Any]:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        code = 128 + number if number else os.WEXITSTATUS(status)
        return {
            "exit_code": code,
            "signal": signal_name(number) if number else None,
            "timed_out": self._ending.reason == "timeout",
            "cancelled": self._ending.reason not in {None, "timeout"},
            "oom_killed": code == 128 + signal.SIGKILL and self._oom.grown,
            "pids_limited": self._refused.grown,
            "reason": self._ending.reason,
            "session_ended": False,
            "state_saved": True,
            "stdout_bytes": self._output.totals[Kind.STDOUT],
            "stderr_bytes": self._output.totals[Kind.STDERR],
            "truncated": self._output.truncated,
            "duration": round(self._took, 6),
        }


def signal_name(number: int) -> str:
    """Return "SIGKILL" for 9, and "SIG34" where the signal has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _open_terminal(config: Config, cols: int, rows: int) -> tuple[int, int]:
    try:
        return terminal.open_pair(config.devices, cols, rows)
    except OSError as error:
        raise errors.CommandExecutionError(
            f"no terminal could be opened: {error.strerror}"
        ) from error
