"""The router's side: which contexts there are, which host has each, which runs are known."""

import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from atoll import errors
from atoll.agent import answer, channel, tree
from atoll.agent.answer import Request
from atoll.agent.checks import check_env
from atoll.agent.commands import Commands, utc_now
from atoll.agent.config import Config
from atoll.agent.environment import layered
from atoll.agent.interpreter import host, programs
from atoll.agent.loop import READ, Loop
from atoll.agent.operations import check_id
from atoll.agent.sessions import Sessions

MAX_CONTEXTS: Final = 64
"""Contexts of a sandbox. Each of Node has a host of about 1 MB in the agent's small cgroup."""

MAX_RUNS: Final = 10_000
KEEP: Final = 600.0


class _Host:
    """A host as the router knows it."""

    def __init__(self, pid: int, sock: socket.socket, language: str) -> None:
        self.pid, self.sock, self.language = pid, sock, language
        self.contexts: set[str] = set()


class _Run:
    """One operation."""

    def __init__(self, id: str, owner: _Host, fingerprint: int) -> None:
        self.id, self.owner, self.fingerprint = id, owner, fingerprint
        self.ended: float | None = None
        self.lost = False  # its host was killed: the outcome is not known

    def describe(self) -> dict[str, Any]:
        return {
            "id": self.id, "kind": "code", "session": None, "pid": None,
            "running": self.ended is None, "detach": False,
        }  # fmt: skip


class Contexts:
    """All contexts and runs of the sandbox."""

    def __init__(self, loop: Loop, config: Config, sessions: Sessions, commands: Commands) -> None:
        self._loop, self._config = loop, config
        self._sessions, self._commands = sessions, commands
        self._all: dict[str, dict[str, Any]] = {}
        self._hosts: dict[int, _Host] = {}
        self._owners: dict[str, _Host] = {}
        self._runs: dict[str, _Run] = {}
        self.routes = {
            "code.create": self._create,
            "code.run": self._run,
            "code.list": self._list,
            "code.delete": self._delete,
            "code.interrupt": lambda request: self._ask("interrupt", request),
            "code.variables": lambda request: self._ask("variables", request),
        }

    def __len__(self) -> int:
        return len(self._hosts)

    def pids(self) -> set[int]:
        """Return the processes of all hosts."""
        return set(self._hosts)

    def operations(self) -> Iterator[dict[str, Any]]:
        """Yield what ``operations`` tells of the runs."""
        for run in self._runs.values():
            yield run.describe()

    def knows(self, request: Request) -> bool:
        """Whether a request is about a run of code."""
        return request.header.get("id") in self._runs

    # Operations

    def _create(self, request: Request) -> None:
        header = request.header
        language = programs.language(header.get("language") or "python")
        id = header.get("id") or os.urandom(8).hex()
        if id in self._all:
            raise errors.ResourceBusyError(f"a context {id!r} exists", context={"contextId": id})
        record = self._new(str(id), language, header)
        message = {
            "do": "create",
            "context": self._surroundings(record),
            "variables": header.get("variables") or {},
            "describe": _described(record),
        }
        self._hand_over(self._owners[record["id"]], message, request)

    def _new(self, id: str, language: str, header: Mapping[str, Any]) -> dict[str, Any]:
        if len(self._all) >= MAX_CONTEXTS:
            raise errors.ResourceBusyError(
                f"there are {MAX_CONTEXTS} code contexts",
                context={"limit": MAX_CONTEXTS},
                suggestion="delete some",
            )
        env = header.get("env") or {} if "code" not in header else {}
        check_env(env)
        name = header.get("session")
        session = self._commands.session(name) if name is not None else None
        now = utc_now()
        record = self._all[id] = {
            "id": id,
            "language": language,
            "cwd": header.get("cwd") or (session.here if session else self._config.workdir),
            "env": env,
            "session": name,
            "user": header.get("user") or (session and session.user) or self._config.user,
            "created_at": now,
            "last_used": now,
        }
        owner = self._owner(language)
        owner.contexts.add(id)
        self._owners[id] = owner
        return record

    def _surroundings(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the host has to know of a context, with the variables of this moment."""
        session = None
        with suppress(errors.SessionNotFoundError):
            session = self._sessions.get(record["session"]) if record["session"] else None
        env = layered(self._sessions.variables(session, self._config.env), record["env"])
        names = ("id", "language", "cwd", "user")
        return {**{name: record[name] for name in names}, "env": env}

    def _run(self, request: Request) -> None:
        self._expire()
        header = request.header
        id = check_id(header.get("id"))
        fingerprint = hash((header.get("code"), header.get("context"), header.get("language")))
        if known := self._runs.get(id):
            if known.fingerprint != fingerprint:
                raise errors.IdempotencyConflictError(
                    "the operation id belongs to another run", context={"id": id}
                )
            self.attach(request)
            return
        check_env(header.get("env") or {})
        if not isinstance(header.get("code"), str):
            raise errors.ValidationFailedError("code must be text", context={"field": "code"})
        record = self._wanted(header)
        record["last_used"] = utc_now()
        owner = self._owners[record["id"]]
        message = {
            "do": "run",
            "operation": id,
            "context": self._surroundings(record),
            "header": {**header, "language": None},
        }
        self._runs[id] = _Run(id, owner, fingerprint)
        self._hand_over(owner, message, request)

    def _wanted(self, header: Mapping[str, Any]) -> dict[str, Any]:
        """Return the context to run in: the one named, or the default one of the language."""
        id = header.get("context")
        if id is not None:
            return self._get(id)
        language = programs.language(header.get("language") or "python")
        default = f"default-{language}"
        if (session := header.get("session")) is not None:
            default = f"{default}-{session}"
        return self._all.get(default) or self._new(default, language, header)

    def _get(self, id: Any) -> dict[str, Any]:
        record = self._all.get(id) if isinstance(id, str) else None
        if record is None:
            raise errors.ContextNotFoundError(
                f"no code context {id!r}",
                context={"contextId": str(id)[:200]},
                suggestion="contexts end with the sandbox's sleep; create it again",
            )
        return record

    def _list(self, request: Request) -> None:
        found = [_described(record) for record in self._all.values()]
        answer.reply(self._loop, request.sock, {"contexts": found})

    def _delete(self, request: Request) -> None:
        self._ask("delete", request)

    def _ask(self, what: str, request: Request) -> None:
        record = self._get(request.header.get("context"))
        message = {"do": what, "context": {"id": record["id"]}}
        self._hand_over(self._owners[record["id"]], message, request)

    def attach(self, request: Request) -> None:
        """Send a run's events from an offset on."""
        run, header = self._runs[request.header["id"]], request.header
        offset = header.get("from_offset") or 0
        if not isinstance(offset, int) or offset < 0:
            raise errors.ValidationFailedError(
                "from_offset is not a position", context={"field": "from_offset"}
            )
        quiet = bool(header.get("quiet"))
        if run.lost:
            raise errors.KernelDiedError(
                "the process that ran the code was killed; all contexts of it are lost",
                context={"restarted": True},
                suggestion="create the context again; the default one starts afresh",
            )
        message = {"do": "attach", "operation": run.id, "from_offset": offset, "quiet": quiet}
        self._hand_over(run.owner, message, request)

    def control(self, request: Request) -> None:
        """Let a connection cancel a run."""
        run = self._runs[request.header["id"]]
        self._hand_over(run.owner, {"do": "control", "operation": run.id}, request)

    def _hand_over(self, owner: _Host, message: dict[str, Any], request: Request) -> None:
        try:
            channel.send(owner.sock, message, [request.sock.fileno()])
        except OSError as error:
            raise errors.InterpreterNotReadyError(
                f"the interpreter's process does not answer: {error.strerror}"
            ) from error
        request.sock.close()

    def _expire(self) -> None:
        now = time.monotonic()
        for run in list(self._runs.values()):
            old = run.ended is not None and now - run.ended > KEEP
            if old or (run.ended is not None and len(self._runs) > MAX_RUNS):
                del self._runs[run.id]
            elif run.ended is None:
                continue
            else:
                break

    # Hosts

    def _owner(self, language: str) -> _Host:
        if language == "python":
            for found in self._hosts.values():
                if found.language == "python":
                    return found
        ours, theirs = channel.pair()
        ours.setblocking(False)
        pid = host.run(theirs, self._config)
        theirs.close()
        made = self._hosts[pid] = _Host(pid, ours, language)
        self._loop.watch(ours.fileno(), READ, lambda _: self._on_report(made))
        return made

    def _on_report(self, owner: _Host) -> None:
        try:
            while message := channel.receive(owner.sock):
                self._take(owner, message.body)
        except BlockingIOError:
            return
        except OSError:
            pass
        self._forget(owner)

    def _take(self, owner: _Host, body: Mapping[str, Any]) -> None:
        if body["report"] == "ended":
            if run := self._runs.get(body["operation"]):
                run.ended = time.monotonic()
        elif body["report"] == "deleted":
            id = body["context"]
            owner.contexts.discard(id)
            self._all.pop(id, None)
            self._owners.pop(id, None)
            if owner.language != "python":  # that one stays for the next context
                with suppress(OSError):
                    channel.send(owner.sock, {"do": "end"})

    def _forget(self, owner: _Host) -> None:
        """A host has ended: its contexts and runs are no more."""
        if self._hosts.pop(owner.pid, None) is None:
            return
        self._loop.forget(owner.sock.fileno())
        owner.sock.close()
        for id in owner.contexts:
            self._all.pop(id, None)
            self._owners.pop(id, None)
        for run in self._runs.values():
            if run.owner is owner and run.ended is None:
                run.ended, run.lost = time.monotonic(), True

    def ended(self, pid: int) -> None:
        """Note that *pid* was reaped."""
        if owner := self._hosts.get(pid):
            self._on_report(owner)

    def end_session(self, name: str) -> None:
        """End the contexts of a session that is deleted."""
        for record in [one for one in self._all.values() if one["session"] == name]:
            with suppress(OSError):
                message = {"do": "delete", "context": {"id": record["id"]}}
                channel.send(self._owners[record["id"]].sock, message)

    def end_all(self) -> None:
        """End everything: the sandbox stops."""
        for owner in list(self._hosts.values()):
            with suppress(OSError):
                channel.send(owner.sock, {"do": "end"})
            tree.send(owner.pid, signal.SIGCONT)  # root inside may have stopped it


def _described(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": record["id"],
        "language": record["language"],
        "cwd": record["cwd"],
        "createdAt": record["created_at"],
        "lastUsed": record["last_used"],
    }
