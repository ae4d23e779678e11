"""The process that owns contexts: one for all of Python, one for each of Node.

Forked by the router when it is needed first. Like a supervisor it is a subreaper in the agent's
cgroup, with the agent's capabilities; kernels are confined commands beneath it.
"""

import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn

from atoll import errors
from atoll.agent import answer, channel, tree, users
from atoll.agent import kernel as system
from atoll.agent.checks import directory
from atoll.agent.config import Config
from atoll.agent.counters import oom_kills
from atoll.agent.descriptors import keep_only
from atoll.agent.environment import base_env, layered
from atoll.agent.interpreter import execution, messages, programs
from atoll.agent.interpreter.context import Context, Question
from atoll.agent.interpreter.execution import Execution
from atoll.agent.interpreter.kernel import Kernel, pair
from atoll.agent.interpreter.started import Started
from atoll.agent.interpreter.warm import Warm, key
from atoll.agent.loop import READ, Loop
from atoll.agent.users import User

KEEP: Final = 60.0
"""Seconds that the output of an ended execution is kept for a caller who attaches again."""

KEEP_COUNT: Final = 200

KEEP_BYTES: Final = 8 << 20

_ROUND: Final = 64
_WAKE: Final = 0.01


def serve(sock: socket.socket, config: Config) -> NoReturn:
    """Be a host from fork to exit; *sock* leads to the router."""
    code = 1
    try:
        keep_only({0, 1, 2, sock.fileno(), *config.procs, *config.events, *config.devices} - {-1})
        system.become_subreaper()
        gc.freeze()
        Host(sock, config).loop.run()
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        tree.kill_all(os.getpid())
        os._exit(code)


class Host:
    """Does what the router asks: each message names a context or an operation."""

    def __init__(self, sock: socket.socket, config: Config) -> None:
        self.loop = Loop()
        self._sock, self._config = sock, config
        self._contexts: dict[str, Context] = {}
        self._users: dict[str, User] = {}
        self._executions: dict[str, Execution] = {}
        self._kernels: dict[int, Kernel] = {}  # those that are our own children
        self._warm: Warm | None = None
        self._oom = oom_kills(config.memory_events)
        self._oom.mark()
        self.loop.on_child(self._reap)
        self.loop.watch(sock.fileno(), READ, self._on_message)

    # The router

    def _on_message(self, _: int) -> None:
        try:
            message = channel.receive(self._sock)
        except OSError:
            message = None
        if message is None:
            self.loop.stop()
            return
        body, conn = message.body, None
        if message.fds:
            conn = socket.socket(fileno=message.fds[0])
            conn.setblocking(False)
        try:
            getattr(self, f"_do_{body['do']}")(body, conn)
        except errors.SandboxError as error:
            self._fail(conn, error)
        except Exception as error:
            sys.excepthook(*sys.exc_info())
            self._fail(conn, errors.InternalError(f"the request could not be handled: {error}"))

    def _fail(self, conn: socket.socket | None, error: errors.SandboxError) -> None:
        if conn is not None and conn.fileno() >= 0:
            answer.fail(self.loop, conn, error)

    def _report(self, **body: Any) -> None:
        try:
            channel.send(self._sock, body)
        except OSError:
            self.loop.stop()

    def _do_create(self, body: dict[str, Any], conn: socket.socket) -> None:
        context = self._new(body["context"])
        variables = body.get("variables")

        def tell(told: dict[str, Any] | errors.SandboxError) -> None:
            if not isinstance(told, errors.SandboxError) and "failed" in told:
                told = errors.ValidationFailedError(
                    f"the variables could not be set: {told['failed']}",
                    context={"field": "variables"},
                    suggestion="frames need pandas and pyarrow in the sandbox",
                )
            if isinstance(told, errors.SandboxError):
                self._drop(context, lambda: self._fail(conn, told))
            else:
                answer.reply(self.loop, conn, body["describe"])

        if variables:
            context.submit(Question(messages.ASSIGN, variables, tell))
        else:
            context.open(tell)

    def _new(self, wanted: dict[str, Any]) -> Context:
        """Make a context that has no kernel yet; raise when its program is not there."""
        id = wanted["id"]
        try:
            user = users.read(wanted["user"])
            env = layered(base_env(user, pty=False), wanted["env"])
            programs.program(wanted["language"], env)
        except errors.SandboxError:
            self._report(report="deleted", context=id)
            raise
        context = self._contexts[id] = Context(
            self.loop, id,
            language=wanted["language"],
            cwd=directory(wanted.get("cwd"), self._config.workdir),
            env=env,
            make=self._make,
            oom_killed=self._oom_grown,
        )  # fmt: skip
        self._users[id] = user
        return context

    def _do_run(self, body: dict[str, Any], conn: socket.socket) -> None:
        self._expire()
        wanted, header, id = body["context"], body["header"], body["operation"]
        try:
            context = self._contexts.get(wanted["id"]) or self._new(wanted)
        except errors.SandboxError:
            self._report(report="ended", operation=id)
            raise
        user = self._users[context.id]
        header["base_env"] = layered(base_env(user, pty=False), wanted["env"])
        job = self._executions[id] = Execution(
            self.loop, id, header,
            on_end=context.end,
            on_pause=context.pause,
            on_settled=partial(self._settled, context),
            on_late=context.late,
        )  # fmt: skip
        job.add(conn, None, quiet=bool(header.get("quiet")))
        try:
            context.submit(job)
        except errors.SandboxError as error:
            job.settle(error)

    def _settled(self, context: Context, job: Execution) -> None:
        self._report(report="ended", operation=job.id)
        context.settled(job)

    def _do_attach(self, body: dict[str, Any], conn: socket.socket) -> None:
        self._execution(body).add(conn, int(body["from_offset"]), quiet=bool(body.get("quiet")))

    def _do_control(self, body: dict[str, Any], conn: socket.socket) -> None:
        execution.control(self.loop, conn, self._execution(body))

    def _execution(self, body: dict[str, Any]) -> Execution:
        found = self._executions.get(body["operation"])
        if found is None:
            raise errors.OperationNotFoundError(context={"id": body["operation"]})
        return found

    def _do_variables(self, body: dict[str, Any], conn: socket.socket) -> None:
        def tell(told: dict[str, Any] | errors.SandboxError) -> None:
            if isinstance(told, errors.SandboxError):
                self._fail(conn, told)
            else:
                answer.reply(self.loop, conn, told)

        self._contexts[body["context"]["id"]].submit(Question(messages.DESCRIBE, {}, tell))

    def _do_interrupt(self, body: dict[str, Any], conn: socket.socket) -> None:
        context = self._contexts.get(body["context"]["id"])
        interrupted = context.interrupt() if context else False
        answer.reply(self.loop, conn, {"interrupted": interrupted})

    def _do_delete(self, body: dict[str, Any], conn: socket.socket | None) -> None:
        def done() -> None:
            if conn is not None:
                answer.reply(self.loop, conn, {})

        context = self._contexts.get(body["context"]["id"])
        if context is None:
            self._report(report="deleted", context=body["context"]["id"])
            done()
        else:
            self._drop(context, done)

    def _drop(self, context: Context, done: Callable[[], None]) -> None:
        def gone() -> None:
            self._contexts.pop(context.id, None)
            self._report(report="deleted", context=context.id)
            done()

        context.close(gone)

    def _do_end(self, _: dict[str, Any], __: None) -> None:
        self.loop.stop()

    def _expire(self) -> None:
        """Forget what ended a while ago: the oldest first, until the rest is within the limits."""
        now, ended = time.monotonic(), [one for one in self._executions.values() if one.settled]
        room, count = KEEP_BYTES, KEEP_COUNT
        for job in reversed(ended):
            room, count = room - job.kept, count - 1
            if room < 0 or count < 0 or now - (job.ended or now) > KEEP:
                del self._executions[job.id]

    # Kernels

    def _make(self, context: Context) -> None:
        user = self._users[context.id]
        program = programs.program(context.language, context.env)
        ours, theirs = pair()
        kernel = Kernel(
            self.loop, ours,
            on_message=context.message,
            on_gone=lambda status, fault: self._gone(context, kernel, status, fault),
        )  # fmt: skip
        context.connected(kernel)
        if context.language == "python":
            plan = {"cwd": context.cwd, "env": context.env}
            kernel.send(messages.encode(messages.PLAN, 0, plan))
            self._python(program, user, context).fork(theirs)
            return
        with theirs:
            started = Started(
                self.loop, self._config, program,
                user=user, env=context.env, cwd=context.cwd, socket_fd=theirs.fileno(),
                on_failed=lambda error: self._not_started(context, error),
                on_output=context.output,
            )  # fmt: skip
        context.shared = started.pump
        kernel.pid = started.pid
        self._kernels[started.pid] = kernel

    def _python(self, program: programs.Program, user: User, context: Context) -> Warm:
        if self._warm and self._warm.key != key(program, user, context.env):
            self._warm.close()
        if self._warm is None:
            self._warm = Warm(
                self.loop, self._config, program,
                user=user, env=context.env, on_gone=self._warm_gone,
            )  # fmt: skip
        return self._warm

    def _warm_gone(self, warm: Warm) -> None:
        if self._warm is warm:
            self._warm = None
        if isinstance(warm.error, errors.SandboxError):
            for context in self._contexts.values():
                if context.kernel and context.kernel.keeper is None:
                    context.failed(warm.error)

    def _not_started(self, context: Context, error: Exception) -> None:
        if isinstance(error, errors.SandboxError):
            context.failed(error)

    def _gone(self, context: Context, kernel: Kernel, status: int | None, fault: str) -> None:
        if kernel.pid in self._kernels:
            del self._kernels[kernel.pid]
            tree.kill_all(os.getpid())  # a host of Node has one context: all below is that one's
        context.gone(kernel, status, fault)

    def _oom_grown(self) -> bool:
        grown = self._oom.grown
        self._oom.mark()
        return grown

    def _reap(self) -> None:
        try:
            for _ in range(_ROUND):
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
                if not pid:
                    return
                if os.WIFSTOPPED(status):
                    self._stopped(pid)
                elif pid in self._kernels:
                    self._kernels[pid].status = status
            self.loop.soon(self._reap)
        except ChildProcessError:
            return

    def _stopped(self, pid: int) -> None:
        """Code may stop its own interpreter, but not the process that others are forked from."""
        if self._warm and pid == self._warm.pid:
            self.loop.later(_WAKE, lambda: tree.send(pid, signal.SIGCONT))


def run(sock: socket.socket, config: Config) -> int:
    """Fork a host; return its pid."""
    pid = os.fork()
    if not pid:
        serve(sock, config)
    return pid
