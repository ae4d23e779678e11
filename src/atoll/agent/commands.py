"""Operations of the router that concern commands: exec, attach, control, operations, shutdown."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from atoll import errors
from atoll.agent import answer, journal
from atoll.agent.answer import Request
from atoll.agent.channel import Message
from atoll.agent.config import Config
from atoll.agent.descriptors import read_all
from atoll.agent.isolation import Isolation
from atoll.agent.loop import Loop
from atoll.agent.operations import Operation, Operations, check_id
from atoll.agent.overdue import Deadline
from atoll.agent.sessions import Session, Sessions
from atoll.agent.viewer import Viewer
from atoll.agent.workers import Worker, Workers
from atoll.wire import frames
from atoll.wire.agent import KILL_GRACE
from atoll.wire.frames import Frame, Kind


class Commands:
    """Hands commands to supervisors and keeps their outcomes."""

    def __init__(
        self, loop: Loop, config: Config, sessions: Sessions, isolation: Isolation
    ) -> None:
        self._loop, self._config, self._sessions = loop, config, sessions
        self._isolation = isolation
        self._operations = Operations(os.close)
        self._workers = Workers(loop, config, on_report=self._on_report, on_left=self._on_left)
        self._workers.prepare()

    def __len__(self) -> int:
        return len(self._workers)

    def exec(self, request: Request) -> None:
        """Run a command, or attach to it if its id is known."""
        self._operations.expire(time.monotonic())
        header = request.header
        id = check_id(header.get("id"))
        fingerprint = hash(repr(header.get("command")))
        if known := self._operations.get(id):
            if known.fingerprint != fingerprint:
                raise errors.IdempotencyConflictError(
                    "the operation id belongs to another command", context={"id": id}
                )
            self._attach(known, request)
            return
        if len(self._workers) >= self._config.commands:
            raise errors.ResourceBusyError(
                f"{self._config.commands} commands run or have left background processes",
                context={"limit": self._config.commands},
                suggestion="wait for some to end, or kill background processes",
            )
        if "log_limit" in header and not request.fds:
            raise errors.NotSupportedByRuntimeError(
                "a log's descriptor cannot travel to this sandbox",
                context={"field": "log_limit"},
                suggestion="run it with exec: its output comes by the connection",
            )
        name = header.get("session")
        session = self.session(name) if name is not None else None
        self._run(Operation(id, session, fingerprint), request)

    def session(self, id: str) -> Session:
        """Return a session as its last command left it."""
        session = self._sessions.use(id, utc_now())
        if session.active and session.active.supervisor:
            self._workers.catch_up(session.active.supervisor)
        return session

    def _run(self, operation: Operation, request: Request) -> None:
        session = operation.session
        operation.detach = bool(request.header.get("detach"))
        operation.limit = _seconds(request.header.get("timeout"))
        queues = session is not None and not operation.detach and request.header.get("turn", True)
        waits = queues and session is not None and session.active is not None
        context, state = (None, []) if waits else self._context(session, turn=queues)
        worker = self._workers.take(operation, self._isolation.of(session))
        body = {"do": "run", "header": request.header, "context": context}
        worker.tell(
            {**body, "logs": len(request.fds)}, [request.sock.fileno(), *request.fds, *state]
        )
        request.sock.close()
        self._operations.add(operation)
        if session and waits:
            session.waiting.append(operation)
            return
        self._set_deadline(operation)
        if session and queues:
            session.active = operation

    def _set_deadline(self, operation: Operation) -> None:
        """From its turn on, as its supervisor counts; what that checks and refuses has ended."""
        if operation.limit is None:
            return
        worker = operation.supervisor

        def ask() -> None:
            with suppress(OSError):  # its packets are full: the next step needs none
                worker.tell({"do": "end", "reason": "timeout", "grace": 0})

        def end() -> int | None:
            self._workers.catch_up(worker)
            operation.overdue = operation.ended is None
            return worker.pid if operation.overdue else None

        operation.deadline = Deadline(self._loop, operation.limit, ask=ask, end=end)

    def _context(self, session: Session | None, *, turn: bool) -> tuple[dict[str, Any], list[int]]:
        """Return what a command starts with, and the file of its session's shell state.

        Without a *turn* it only starts where the session's shell is now, with its variables.
        """
        here = session.here if session else self._config.workdir
        context: dict[str, Any] = {
            "env": self._sessions.variables(session, self._config.env),
            "cwd": session.cwd if session and turn else here,
            "here": here,
            "user": (session and session.user) or self._config.user,
            "session": turn,
            "pending": session.pending if session else {},
            "room": self._sessions.reserve(session) if session and turn else 0,
        }
        return context, [session.state] if session and session.state is not None else []

    def attach(self, request: Request) -> None:
        """Send an operation's events from an offset on."""
        self._attach(self._known(request), request)

    def control(self, request: Request) -> None:
        """Let a connection send frames to an operation."""
        operation = self._known(request)
        if operation.ended is None:
            operation.supervisor.tell({"do": "control"}, [request.sock.fileno()])
            request.sock.close()
        else:
            Viewer(self._loop, request.sock, on_frame=_ended)

    def operations(self, request: Request, others: Iterable[dict[str, Any]] = ()) -> None:
        """List what is known, and *others* beside commands."""
        self._operations.expire(time.monotonic())
        for operation in self._workers.operations():
            self._workers.catch_up(operation.supervisor)
        found = [*(operation.describe() for operation in self._operations), *others]
        answer.reply(self._loop, request.sock, {"operations": found})

    def _known(self, request: Request) -> Operation:
        self._operations.expire(time.monotonic())
        id = check_id(request.header.get("id"))
        operation = self._operations.get(id)
        if operation is None:
            raise errors.OperationNotFoundError(context={"id": id})
        return operation

    def _attach(self, operation: Operation, request: Request) -> None:
        offset = request.header.get("from_offset") or 0
        if not isinstance(offset, int) or offset < 0:
            raise errors.ValidationFailedError(
                "from_offset is not a position", context={"field": "from_offset"}
            )
        if operation.supervisor:
            self._workers.catch_up(operation.supervisor)
        if operation.ended is None:
            quiet = bool(request.header.get("quiet"))
            body = {"do": "attach", "from_offset": offset, "quiet": quiet}
            operation.supervisor.tell(body, [request.sock.fileno()])
            request.sock.close()
        else:
            answer.Answer(self._loop, request.sock, journal.resume(_kept(operation), offset))

    def _on_report(self, worker: Worker, message: Message) -> None:
        operation, body = worker.operation, message.body
        files = dict(zip(body.get("files", ()), message.fds, strict=False))
        if operation is None or operation.ended is not None:
            for fd in message.fds:
                os.close(fd)
        elif body["report"] == "started":
            operation.pid = body["pid"]
        elif body["report"] == "ended":
            operation.last = body["last"].encode("latin-1")
            operation.tail = body.get("tail", "").encode("latin-1")
            operation.size = len(operation.tail)
            if (tail := files.get("tail")) is not None:
                operation.tail_fd, operation.size = tail, os.fstat(tail).st_size
            self._operations.end(operation, time.monotonic())
            self._after(operation, body.get("shell"), files.get("state"))
            with suppress(OSError):
                worker.tell({"do": "release"})

    def _after(self, operation: Operation, shell: dict[str, Any] | None, state: int | None) -> None:
        """Take over what the command left of its session, and let the next one begin."""
        session = operation.session
        if session is None or not self._sessions.exists(session):
            if state is not None:
                os.close(state)
            return
        if state is not None and shell:
            self._sessions.save(session, state, shell["cwd"])
        elif shell and shell.get("ended"):
            self._sessions.end_shell(session)
        if session.active is operation:
            session.active, session.room = None, 0
            self._begin_next(session)
        elif operation in session.waiting:
            session.waiting.remove(operation)

    def _begin_next(self, session: Session) -> None:
        while session.waiting and session.active is None:
            operation = session.waiting.popleft()
            context, state = self._context(session, turn=True)
            with suppress(OSError):  # its supervisor is gone: `_on_left` reports that
                operation.supervisor.tell({"do": "go", "context": context}, state)
                session.active = operation
                self._set_deadline(operation)

    def _on_left(self, worker: Worker) -> None:
        operation = worker.operation
        if operation is None:
            return
        operation.supervisor = None
        if operation.ended is None:
            lost = _overdue(operation) if operation.overdue else _killed(operation)
            operation.last = frames.encode_json(Kind.ERROR, lost.to_wire())
            self._operations.end(operation, time.monotonic())
            self._after(operation, None, None)

    def end_session(self, session: Session) -> None:
        """End what runs or waits in a deleted session, and what its commands have left."""
        self._end("session", KILL_GRACE, lambda operation: operation.session is session)

    def pids(self) -> set[int]:
        """Return the processes of all supervisors."""
        return self._workers.pids()

    def in_session(self, session: Session) -> bool:
        """Whether something of the session is still alive."""
        return any(operation.session is session for operation in self._workers.operations())

    def end_all(self, grace: float, number: int) -> None:
        """End everything, first by signal *number*: the sandbox stops."""
        self._end("shutdown", grace, lambda _: True, number)

    def _end(
        self,
        reason: str,
        grace: float,
        wanted: Callable[[Operation], bool],
        number: int | None = None,
    ) -> None:
        message = {"do": "end", "reason": reason, "grace": grace, "signal": number}
        for operation in self._workers.operations():
            if wanted(operation):
                with suppress(OSError):
                    operation.supervisor.tell(message)


def _killed(operation: Operation) -> errors.SandboxError:
    return errors.CommandExecutionError(
        "the command's supervisor was killed; its outcome is not known",
        context={"id": operation.id},
    )


def _overdue(operation: Operation) -> errors.SandboxError:
    return errors.TimeoutError(
        f"the command did not end within {operation.limit} s, and its supervisor did not answer",
        context={"id": operation.id, "timeout": operation.limit},
        suggestion="both were killed; something inside stops or starves the agent's processes",
    )


def _seconds(value: object) -> float | None:
    """Return a time limit; one that is none is refused by who checks the request."""
    return float(value) if isinstance(value, int | float) and value >= 0 else None


def utc_now() -> str:
    """Return the time in ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _ended(viewer: Viewer, frame: Frame) -> None:
    """Read what is sent to a command that has ended, and say so."""
    if frame.kind == Kind.END:
        viewer.send(frames.encode_json(Kind.REPLY, {"running": False}))
        viewer.finish()


def _kept(operation: Operation) -> Iterator[bytes]:
    data = operation.tail
    if operation.tail_fd is not None:
        data = read_all(operation.tail_fd)
    at = 0
    while at < len(data):
        end = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
        yield data[at:end]
        at = end
    yield operation.last
