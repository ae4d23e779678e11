"""One context: its jobs in order, one at a time, and a kernel that is made again when it dies.

A job that must end early is interrupted first; what does not listen is killed with its kernel, and
the next job finds a new one. State is never lost in silence: whoever's job ended that way is told,
and a kernel that died between two jobs is told by the next run.
"""

import json
import os
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from atoll import errors
from atoll.agent.interpreter import messages
from atoll.agent.interpreter.execution import Execution
from atoll.agent.interpreter.kernel import Kernel
from atoll.agent.interpreter.messages import Message, MessageError
from atoll.agent.interpreter.started import ended
from atoll.agent.loop import Loop, Timer
from atoll.agent.pump import Pump
from atoll.wire.frames import Kind

GRACE: Final = 1.0
"""Seconds between the interrupt of an execution and the end of its kernel."""

AGAIN: Final = 0.3
"""Seconds after which it is interrupted once more: the first may have come before the code began,
when a kernel ignores it, as it must ignore one that comes too late."""

START: Final = 60.0
"""Seconds a kernel may take until it is ready, imports on a busy machine included."""

MAX_LATE: Final = 64 << 10
"""Bytes kept of output that came after the end of its execution, until the next one."""

MAX_WAITING: Final = 1_000

Answer = Callable[[dict[str, Any] | errors.SandboxError], None]


class Maker(Protocol):
    """Makes kernels for a context."""

    def __call__(self, context: "Context") -> None:
        """Start one; `Context.connected` or `Context.failed` is called then or later."""


class Question:
    """A job that is no execution: variables to set or to tell."""

    def __init__(self, kind: bytes, body: Mapping[str, Any], answer: Answer) -> None:
        self.kind, self.body, self.answer = kind, body, answer


Job = Execution | Question


class Context:
    """State between pieces of code.

    Args:
        env: variables it starts with.
        make: starts a kernel.
        oom_killed: tells whether the kernel of the operating system has killed something since it
            was asked last.
    """

    def __init__(
        self,
        loop: Loop,
        id: str,
        *,
        language: str,
        cwd: str,
        env: Mapping[str, str],
        make: Maker,
        oom_killed: Callable[[], bool],
    ) -> None:
        self._loop, self.id, self.language = loop, id, language
        self.cwd, self.env = cwd, dict(env)
        self._make, self._oom_killed = make, oom_killed
        self._jobs: deque[Job] = deque()
        self._active: Job | None = None
        self._killing: Timer | None = None
        self._number = 0
        self._ready = False
        self._late: list[dict[str, Any]] = []
        self._lost: errors.SandboxError | None = None
        self._opened: list[Answer] = []
        self._closed: list[Callable[[], None]] = []
        self.closing = False
        self.kernel: Kernel | None = None
        self.shared: Pump | None = None  # reads what a kernel prints that takes no descriptors
        self._last: Execution | None = None
        self._making = False

    # Jobs

    def open(self, answer: Answer) -> None:
        """Have a kernel ready, and say so."""
        self._opened.append(answer)
        self._go_on()

    def submit(self, job: Job) -> None:
        """Run *job* after those that wait.

        Raises:
            ResourceBusyError: `MAX_WAITING` wait.
        """
        if len(self._jobs) >= MAX_WAITING:
            raise errors.ResourceBusyError(f"{MAX_WAITING} calls wait for this context")
        self._jobs.append(job)
        self._go_on()

    def _go_on(self) -> None:
        if self._active is not None or self.closing:
            return
        if self.kernel is None or not self._ready:
            if (self._jobs or self._opened) and not self._making and self.kernel is None:
                self._making = True
                self._make(self)
            return
        opened, self._opened = self._opened, []
        for answer in opened:
            answer({})
        while self._jobs and self._active is None:
            self._begin(self._jobs.popleft())

    def _begin(self, job: Job) -> None:
        kernel = self.kernel
        if kernel is None:
            return
        if isinstance(job, Question):
            self._active = job
            self._number += 1
            kernel.send(messages.encode(job.kind, self._number, job.body))
        elif job.settled:
            return
        elif self._lost is not None:
            lost, self._lost = self._lost, None
            job.settle(lost)
        else:
            self._active = job
            self._run(kernel, job)

    def _run(self, kernel: Kernel, job: Execution) -> None:
        self._number += 1
        body = {
            "code": job.header.get("code", ""),
            "language": job.header.get("language") or self.language,
            "env": self._changes(job.header.get("base_env")),
            "envVars": job.header.get("env") or {},
        }
        fds = job.begin(kernel.pid or 0, self.shared)
        self._last = job
        late, self._late = self._late, []
        for line in late:
            job.result(_message(line))
        kernel.pause(False)
        kernel.send(messages.encode(messages.RUN, self._number, body), fds)
        for fd in fds:
            os.close(fd)

    def _changes(self, now: Mapping[str, str] | None) -> dict[str, str | None]:
        """Return what has changed in the sandbox's variables since the kernel was told last."""
        if now is None:
            return {}
        changes: dict[str, str | None] = dict.fromkeys(self.env.keys() - now.keys())
        changes |= {name: value for name, value in now.items() if self.env.get(name) != value}
        self.env = dict(now)
        return changes

    def settled(self, job: Execution) -> None:
        """The outcome of *job* was told."""
        if self._active is job:
            self._active = None
            self._stop_killing()
            self._loop.soon(self._go_on)

    def output(self, kind: int, data: bytes) -> None:
        """Take what a kernel prints that takes no descriptors: of the run that goes on, or the last."""
        if self._last is not None:
            self._last.take(kind, data)

    def late(self, job: Execution, kind: int, data: bytes) -> None:
        """Keep output that came after the end of its execution, for the next one to tell."""
        name = "stdout" if kind == Kind.STDOUT else "stderr"
        if kind == Kind.RESULT or sum(len(one["text"]) for one in self._late) > MAX_LATE:
            return
        told = {"type": "late", "name": name, "executionCount": job.count}
        text = data.decode("utf-8", "replace")[:MAX_LATE]
        if self._late and self._late[-1] | told == self._late[-1]:
            self._late[-1]["text"] += text
        else:
            self._late.append({**told, "text": text})

    # Ending jobs early

    def interrupt(self) -> bool:
        """Interrupt what runs; return whether something did."""
        if isinstance(self._active, Execution):
            self._active.end("interrupt")
            return True
        return False

    def end(self, job: Execution, reason: str) -> None:
        """End one execution early: it was asked for, or its time is over."""
        if job is not self._active:
            with suppress(ValueError):
                self._jobs.remove(job)
            job.settle(
                errors.OperationInterruptedError(
                    f"the code was ended before it started ({reason})",
                    context={"contextId": self.id},
                )
            )
        elif self.kernel:
            self.kernel.interrupt()
            self._loop.later(AGAIN, lambda: self._interrupt_again(job))
            self._killing = self._loop.later(GRACE, self._kill)

    def _interrupt_again(self, job: Execution) -> None:
        if job is self._active and self.kernel:
            self.kernel.interrupt()

    def _kill(self) -> None:
        if self.kernel:
            self.kernel.kill()

    def _stop_killing(self) -> None:
        if self._killing:
            self._killing.cancel()
            self._killing = None

    # The kernel

    def connected(self, kernel: Kernel) -> None:
        """A kernel was started; it says when it is ready."""
        self.kernel, self._ready, self._making = kernel, False, False
        self._loop.later(START, lambda: self._check_started(kernel))
        self._oom_killed()

    def _check_started(self, kernel: Kernel) -> None:
        if kernel is self.kernel and not self._ready:
            self._give_up(
                errors.InterpreterNotReadyError(
                    f"the {self.language} interpreter did not start within {START:g} s",
                    context={"contextId": self.id},
                    suggestion="try again, with less running in the sandbox",
                )
            )

    def failed(self, error: errors.SandboxError) -> None:
        """No kernel could be started: everybody who waits for one is told."""
        self._making = False
        self.kernel = None
        jobs, self._jobs = list(self._jobs), deque()
        opened, self._opened = self._opened, []
        for answer in opened:
            answer(error)
        for job in jobs:
            _refuse(job, error)

    def message(self, message: Message) -> None:
        """Take a message of the kernel; of another execution than the one that runs, none."""
        try:
            self._take(message)
        except MessageError:
            self._kill()

    def _take(self, message: Message) -> None:
        if message.kind == messages.READY:
            self._on_ready(messages.decode(message))
        elif message.number != self._number or self._active is None:
            return
        elif isinstance(self._active, Question):
            if message.kind == messages.REPLY:
                job, self._active = self._active, None
                job.answer(messages.decode(message))
                self._go_on()
        elif message.kind == messages.RESULT:
            self._active.result(message)
        elif message.kind == messages.DONE:
            self._stop_killing()
            self._active.done(messages.decode(message))

    def _on_ready(self, told: dict[str, Any]) -> None:
        if (number := told.get("errno")) is not None:
            path = str(told.get("path") or self.cwd)
            self._give_up(errors.from_os_error(OSError(int(number), os.strerror(number)), path))
            return
        if "failed" in told:
            self._give_up(errors.JavascriptNotAvailableError(str(told["failed"])[:500]))
            return
        self._ready = True
        self._go_on()

    def _give_up(self, error: errors.SandboxError) -> None:
        kernel, self.kernel = self.kernel, None
        if kernel:
            kernel.kill()
        self.failed(error)

    def pause(self, paused: bool) -> None:
        """Have the kernel wait for callers who do not read."""
        if self.kernel:
            self.kernel.pause(paused)

    def gone(self, kernel: Kernel, status: int | None, fault: str) -> None:
        """A kernel has ended."""
        if kernel is not self.kernel:
            return
        was_ready, self.kernel, self._ready = self._ready, None, False
        self._stop_killing()
        error = self._death(status, fault)
        job, self._active = self._active, None
        if self.closing:
            if job:
                _refuse(job, error)
            self._tell_closed()
        elif job is not None:
            if isinstance(job, Execution) and job.reason is not None:
                job.died(job.record({"count": 0}, restarted=True))
            elif isinstance(job, Execution):
                job.died(error)
            else:
                job.answer(error)
            self._loop.soon(self._go_on)
        elif was_ready:
            self._lost = error
            self._loop.soon(self._go_on)
        else:
            self.failed(
                errors.InterpreterNotReadyError(
                    "the interpreter of the context did not start", context=error.context
                )
            )

    def _death(self, status: int | None, fault: str) -> errors.SandboxError:
        oom = self._oom_killed()
        known = {"exitCode": None, "signal": None} if status is None else ended(status)
        why = "for lack of memory" if oom else _words(known, fault)
        return errors.KernelDiedError(
            f"the {self.language} interpreter of the context ended ({why}); its variables are lost",
            context={
                **known, "contextId": self.id, "oomKilled": oom, "restarted": not self.closing,
            },
            suggestion="run again what the next code needs: the context starts afresh",
        )  # fmt: skip

    # The end

    def close(self, done: Callable[[], None]) -> None:
        """End the kernel with everything below it; *done* is called then."""
        self._closed.append(done)
        self.closing = True
        gone = errors.ContextNotFoundError(
            f"the context {self.id!r} was deleted", context={"contextId": self.id}
        )
        jobs, self._jobs = list(self._jobs), deque()
        for job in jobs:
            _refuse(job, gone)
        for answer in self._opened:
            answer(gone)
        self._opened = []
        if self.kernel is None:
            self._tell_closed()
        else:
            self.kernel.kill()

    def _tell_closed(self) -> None:
        told, self._closed = self._closed, []
        for done in told:
            done()


def _refuse(job: Job, error: errors.SandboxError) -> None:
    if isinstance(job, Execution):
        job.died(error)
    else:
        job.answer(error)


def _words(known: Mapping[str, Any], fault: str) -> str:
    if fault:
        return f"it wrote to the descriptor of the protocol: {fault}"
    if known["signal"]:
        return f"signal {known['signal']}"
    return "how is not known" if known["exitCode"] is None else f"exit code {known['exitCode']}"


def _message(told: Mapping[str, Any]) -> Message:
    body = json.dumps(told).encode()
    return Message(messages.RESULT, 0, body, len(body))
