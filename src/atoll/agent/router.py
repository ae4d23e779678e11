"""Pid 1: accepts connections, reads one HEADER from each, routes it. Never blocks, does no work.

Only the engine can connect (the listening socket has no name inside), but the router does not
rely on it: what a connection may send before it is routed is bounded in size and time.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from atoll import errors
from atoll.agent import answer, channel, greeting, tree
from atoll.agent.answer import Request
from atoll.agent.children import Children
from atoll.agent.commands import Commands, utc_now
from atoll.agent.config import Config
from atoll.agent.interpreter.contexts import Contexts
from atoll.agent.isolation import Isolation
from atoll.agent.lease import Lease
from atoll.agent.listener import Gate, open_listener, tune
from atoll.agent.loop import GONE, READ, Loop
from atoll.agent.orphans import Orphans
from atoll.agent.sessions import Sessions
from atoll.agent.stub import take_defaults
from atoll.wire import frames
from atoll.wire.agent import KILL_GRACE
from atoll.wire.frames import CHUNK, MAX_FRAME, Kind

HEADER_TIMEOUT: Final = 10.0
MAX_PENDING: Final = 512
"""Connections that have not sent their HEADER yet."""

MAX_PENDING_BYTES: Final = 32 << 20
"""Bytes of unfinished HEADERs, of all connections: whoever reaches an address may send them."""

_PREFIX: Final = 5
_POLL: Final = 0.01
_ROUND: Final = 64
"""Children looked at before everything else has its turn."""
_MARGIN: Final = 1.0
"""Seconds beyond a grace after which an answer no longer waits for the last process."""

Handler = Callable[[Request], None]


class Router:
    """Owns the listening socket and all that is shared between operations."""

    def __init__(self, config: Config) -> None:
        take_defaults(config)
        self.loop = Loop()
        self._config = config
        self.loop.on_child(self._reap)
        self._listener, self._gate = open_listener(config), Gate(config.token)
        self.loop.watch(self._listener.fileno(), READ, self._accept)
        self._lease = Lease(self.loop, config.lease)
        self._pending: dict[Pending, None] = {}
        self._sessions = Sessions(config.workdir, os.close)
        self._children = Children(self.loop, config)
        self._isolation = Isolation(passed_on=config.confine)
        self._commands = commands = Commands(self.loop, config, self._sessions, self._isolation)
        self._code = code = Contexts(self.loop, config, self._sessions, commands)
        self._owner: tuple[str, int] | None = None  # whom it was assigned to, and which start
        self._stopping = False
        self._waking: set[int] = set()
        self._orphans = Orphans(self.loop, self._kill_orphans)
        self._routes: dict[str, Handler] = {
            "hello": self._hello,
            "lease": self._lease.renew,
            "assign": self._assign,
            "exec": commands.exec,
            "attach": lambda one: (code if code.knows(one) else commands).attach(one),
            "control": lambda one: (code if code.knows(one) else commands).control(one),
            "operations": lambda one: commands.operations(one, code.operations()),
            "session.create": self._create_session,
            "session.delete": self._delete_session,
            "session.list": self._list_sessions,
            "session.env": self._set_env,
            "session.export": self._export,
            "session.import": self._import,
            "port.connect": self._connect_port,
            "shutdown": self._shutdown,
            **code.routes,
        }

    def _accept(self, _: int) -> None:
        try:
            sock, _address = self._listener.accept()
        except OSError:
            return
        self.take(sock)

    def take(self, sock: socket.socket) -> None:
        """Take over a connection that was accepted."""
        tune(sock)
        if len(self._pending) >= MAX_PENDING:  # the engine sends its HEADER at once
            next(iter(self._pending)).refuse()
        pending = Pending(
            self.loop, sock, self._route, done=self._pending.pop, on_wait=self._make_room
        )
        self._pending[pending] = None
        pending.read()

    def _make_room(self) -> None:
        """Hang up on those that have sent half a HEADER for the longest time."""
        held = sum(pending.size for pending in self._pending)
        for pending in [*self._pending]:
            if held <= MAX_PENDING_BYTES:
                return
            held -= pending.size
            pending.refuse()

    def _route(self, request: Request) -> None:
        self._lease.check()
        try:
            self._gate.check(request.header)
            self._handler(request.header.get("op"))(request)
        except errors.UnauthorizedError as error:
            if self._gate.answers:
                answer.fail(self.loop, request.sock, error)
            else:
                request.sock.close()
        except errors.SandboxError as error:
            answer.fail(self.loop, request.sock, error)
        except OSError as error:
            busy = errors.ResourceBusyError(f"the agent is busy: {error.strerror}")
            answer.fail(self.loop, request.sock, busy)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            sys.excepthook(*sys.exc_info())
            wrong = errors.ValidationFailedError(f"the request is malformed: {error}")
            answer.fail(self.loop, request.sock, wrong)
        finally:
            for fd in request.fds:
                os.close(fd)

    def _handler(self, name: object) -> Handler:
        if self._stopping:
            raise errors.ContainerNotReadyError("the sandbox is stopping", retry_after=1)
        if isinstance(name, str) and name in self._routes:
            return self._routes[name]
        if isinstance(name, str) and name.startswith("fs."):
            return self._file_operation
        raise errors.ValidationFailedError(
            f"this agent has no operation {name!r}", context={"op": name}
        )

    def _hello(self, request: Request) -> None:
        body = greeting.hello(self._config.version, self._config.generation, self._config.image)
        answer.reply(self.loop, request.sock, body)

    def _assign(self, request: Request) -> None:
        """Become the agent of a sandbox, once: it was started ahead, for nobody.

        The same sandbox may ask again; two sandboxes may have the same generation.
        """
        owner = str(request.header["sandbox"]), int(request.header["generation"])
        if self._config.generation != 0 and self._owner != owner:
            raise errors.StaleHandleError("this agent has a sandbox already")
        self._sessions.set_env(None, request.header.get("env") or {})
        with suppress(OSError):  # refused where the engine does it from outside
            socket.sethostname(str(request.header.get("hostname") or socket.gethostname()))
        self._owner, self._config = owner, self._config._replace(generation=owner[1])
        answer.reply(self.loop, request.sock, {})

    def _file_operation(self, request: Request) -> None:
        id = request.header.get("session")
        session = self._commands.session(id) if id is not None else None
        cwd = session.here if session else self._config.workdir
        user = request.header.get("user") or (session and session.user) or self._config.user
        header = {**request.header, "cwd": request.header.get("cwd") or cwd}
        self._children.start(request.sock, header, str(user))

    def _connect_port(self, request: Request) -> None:
        wanted = request.header
        checked = {**wanted, "address": str(wanted["address"]), "port": int(wanted["port"])}
        self._children.start(request.sock, checked, self._config.user)

    def _create_session(self, request: Request) -> None:
        wanted = {**request.header, "id": request.header.get("id") or os.urandom(8).hex()}
        session = self._sessions.create(wanted, utc_now())
        try:
            self._isolation.of(session)
        except (errors.SandboxError, OSError):
            self._sessions.delete(session.id)
            raise
        answer.reply(self.loop, request.sock, session.describe())

    def _list_sessions(self, request: Request) -> None:
        found = [self._commands.session(session.id).describe() for session in self._sessions]
        answer.reply(self.loop, request.sock, {"sessions": found})

    def _set_env(self, request: Request) -> None:
        self._sessions.set_env(request.header.get("session"), request.header.get("env"))
        answer.reply(self.loop, request.sock, {})

    def _export(self, request: Request) -> None:
        for session in self._sessions:
            self._commands.session(session.id)
        answer.reply(self.loop, request.sock, self._sessions.export())

    def _import(self, request: Request) -> None:
        self._sessions.restore(request.header, utc_now())
        answer.reply(self.loop, request.sock, {})

    def _delete_session(self, request: Request) -> None:
        """Answer when nothing of the session is alive."""
        name = request.header.get("id") or request.header.get("session")
        session = self._sessions.delete(str(name))
        self._commands.end_session(session)
        self._code.end_session(session.id)

        def leave() -> None:
            self._isolation.end(session)
            answer.reply(self.loop, request.sock, {})

        self._when(lambda: not self._commands.in_session(session), KILL_GRACE + _MARGIN, leave)

    def _shutdown(self, request: Request) -> None:
        """End everything, answer, leave."""
        grace = float(request.header.get("grace") or 0)
        number = signal.Signals[request.header.get("signal") or "SIGTERM"]
        self._stopping = True
        self._commands.end_all(grace, number)
        self._code.end_all()
        self._children.signal(signal.SIGTERM)

        def leave() -> None:
            self._children.signal(signal.SIGKILL)
            reply = frames.encode_json(Kind.REPLY, {})
            answer.Answer(self.loop, request.sock, [reply], self.loop.stop)

        self._when(lambda: not self._alive(), grace + _MARGIN, leave)

    def _alive(self) -> int:
        return len(self._commands) + len(self._children) + len(self._code)

    def _when(self, ready: Callable[[], bool], most: float, then: Callable[[], None]) -> None:
        """Call *then* once *ready*, after *most* seconds at the latest."""
        if ready() or most <= 0:
            then()
        else:
            self.loop.later(_POLL, lambda: self._when(ready, most - _POLL, then))

    def _reap(self) -> None:
        """Collect ended supervisors and children, and orphans of supervisors that were killed.

        Commands are children of their supervisors, so no exit code is ever taken here.
        """
        with suppress(ChildProcessError):
            for _ in range(_ROUND):
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
                if not pid:
                    return
                if os.WIFSTOPPED(status):  # by root inside: whoever waits for it would hang
                    if self._config.subreapers or pid in self._known():
                        self._wake(pid)
                    continue
                if status and self._config.subreapers:  # else any orphan ends up here
                    self._orphans.look()
                self._children.ended(pid)
                self._code.ended(pid)
                self._isolation.ended(pid)
            self.loop.later(_POLL, self._reap)

    def _wake(self, pid: int) -> None:
        """Continue a stopped child, a little later: who stops it in a loop must not keep us busy."""
        if pid not in self._waking:
            self._waking.add(pid)
            self.loop.later(_POLL, lambda: self._go_on(pid))

    def _go_on(self, pid: int) -> None:
        self._waking.discard(pid)
        tree.send(pid, signal.SIGCONT)

    def _known(self) -> set[int]:
        """Return the children that were forked here; others are orphans."""
        own = self._commands.pids() | self._children.pids() | self._code.pids()
        return own | self._isolation.pids()

    def _kill_orphans(self) -> bool:
        """A supervisor was killed: nobody would end or reap what it leaves, so it goes too."""
        inits = self._isolation.pids()
        return tree.kill_strangers({os.getpid(), *inits}, self._known())


class Pending:
    """A connection whose HEADER is not complete."""

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        route: Handler,
        *,
        done: Callable[["Pending"], object],
        on_wait: Callable[[], None],
    ) -> None:
        self._loop, self._sock, self._route = loop, sock, route
        self._done, self._on_wait = done, on_wait
        self._data = bytearray()
        self._fds: list[int] = []
        self._released = False
        sock.setblocking(False)
        self._timer = loop.later(HEADER_TIMEOUT, self._overdue)
        loop.watch(sock.fileno(), READ | GONE, lambda _: self.read())

    def read(self) -> None:
        """Read the HEADER and not a byte more: what follows belongs to who handles it."""
        try:
            while (missing := self._missing()) > 0:
                data, fds = channel.receive_bytes(self._sock, missing)
                self._fds += fds
                if not data or len(self._fds) > channel.MAX_FDS:
                    self.refuse()
                    return
                self._data += data
        except BlockingIOError:
            if self.size > CHUNK:
                self._on_wait()
            return
        except OSError:
            self.refuse()
            return
        if missing < 0:
            self.refuse()
            return
        self._release()
        try:
            header = json.loads(self._data[_PREFIX:])
        except (ValueError, RecursionError):
            header = {}
        self._route(Request(self._sock, header if isinstance(header, dict) else {}, self._fds))

    def _overdue(self) -> None:
        """Hang up, unless the rest came while this process was kept from reading it."""
        self.read()
        if not self._released:
            self.refuse()

    @property
    def size(self) -> int:
        """Bytes that have come."""
        return len(self._data)

    def _missing(self) -> int:
        """Return how many bytes to read next; negative when this is no HEADER."""
        if len(self._data) < _PREFIX:
            return _PREFIX - len(self._data)
        length = int.from_bytes(self._data[1:_PREFIX], "big")
        if self._data[0] != Kind.HEADER or length > MAX_FRAME:
            return -1
        return _PREFIX + length - len(self._data)

    def _release(self) -> None:
        self._released = True
        self._timer.cancel()
        self._loop.forget(self._sock.fileno())
        self._done(self)

    def refuse(self) -> None:
        """Hang up."""
        self._release()
        self._sock.close()
        for fd in self._fds:
            os.close(fd)
