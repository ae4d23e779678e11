"""Session records: what the router knows of each shell between its commands.

A session runs one command at a time, in the order they came. Its shell state is an opaque blob in
a memory file: made and read by supervisors, never interpreted by pid 1. Pure but for those files,
which are closed by *release*.
"""

import binascii
import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from atoll import errors
from atoll.agent.checks import check_env
from atoll.agent.descriptors import read_all, spill
from atoll.agent.environment import layered
from atoll.agent.operations import Operation
from atoll.wire.agent import DEFAULT_SESSION

MAX_SESSIONS: Final = 1_000

Env = dict[str, str | None]
MAX_EXPORT: Final = 7 << 20
"""Bytes of one export, as it is encoded: more than the largest frame would keep none at all."""

MAX_RECORDS: Final = 3 << 20
"""Bytes of all records without what a shell left: what callers set, which no export leaves out."""

MAX_STATES: Final = 32 << 20
"""Bytes of all states together, beyond which a session gets no more than `SMALL_STATE`."""

SMALL_STATE: Final = 32 << 10

_CARRIED: Final = ("env", "changes", "pending", "here")
_NAMED: Final = ("id", "name", "cwd", "user", "isolation", "created_at", "command_timeout")


class Session:
    """One shell session.

    Attributes:
        env: variables given at its creation.
        changes: variables set since by `set_env`, kept for good.
        pending: those changes that the shell's state does not know yet.
        here: the shell's current directory.
        state: memory file with the shell state, None for a fresh shell.
        namespace: of an isolated session: where its processes live, once there was one. Opaque.
    """

    def __init__(self, id: str, cwd: str, user: str | None, env: Env) -> None:
        self.id, self.cwd, self.user, self.env = id, cwd, user, env
        self.name: str | None = None
        self.isolation = False
        self.created_at = ""
        self.command_timeout: float | None = None
        self.changes: Env = {}
        self.pending: Env = {}
        self.here = cwd
        self.state: int | None = None
        self.size = 0  # bytes of that file
        self.weight = 0  # bytes of what callers set, in an export
        self.room = 0  # bytes that the command which runs may leave as the next state
        self.namespace: Any = None
        self.active: Operation | None = None
        self.waiting: deque[Operation] = deque()

    def record(self) -> dict[str, Any]:
        """Return everything but the state, as `Sessions.restore` takes it."""
        return {name: getattr(self, name) for name in (*_NAMED, *_CARRIED)}

    def left(self, state: int) -> dict[str, Any]:
        """Return what its shell left, as `Sessions.restore` takes it."""
        return {"here": self.here, "state": _as_text(read_all(state))}

    def weigh(self) -> None:
        """Note what the record takes."""
        self.weight = _encoded_size(self.record() | {"here": self.cwd})

    def describe(self) -> dict[str, Any]:
        """Return what callers are told of it: `SessionInfo` on the wire."""
        limit = self.command_timeout
        return {
            "id": self.id,
            "name": self.name,
            "cwd": self.here,
            "user": self.user,
            "isolation": self.isolation,
            "createdAt": self.created_at,
            "commandTimeout": None if limit is None else round(limit * 1000),
        }


class Sessions:
    """All sessions by id, and the variables of the whole sandbox."""

    def __init__(self, workdir: str, release: Callable[[int], None]) -> None:
        self._workdir, self._release = workdir, release
        self._all: dict[str, Session] = {}
        self.env: Env = {}

    def __iter__(self) -> Iterator[Session]:
        return iter(self._all.values())

    def create(self, wanted: Mapping[str, Any], now: str) -> Session:
        """Make a session from the fields of ``session.create``.

        Raises:
            SessionAlreadyExistsError: one of this id exists.
            ResourceBusyError: there are `MAX_SESSIONS`, or their variables take `MAX_RECORDS`.
            ValidationFailedError: a field is wrong.
        """
        id = wanted.get("id")
        if not isinstance(id, str) or not 1 <= len(id) <= 200:
            raise _invalid("id", "a session needs an id of 1 to 200 characters")
        if id in self._all:
            raise errors.SessionAlreadyExistsError(
                f"a session {id!r} exists", context={"session": id}
            )
        if len(self._all) >= MAX_SESSIONS:
            raise errors.ResourceBusyError(
                f"there are {MAX_SESSIONS} sessions",
                context={"limit": MAX_SESSIONS},
                suggestion="delete some",
            )
        session = self._made(id, wanted)
        session.created_at = session.created_at or now
        session.weigh()
        self._check_room(session.weight)
        self._all[id] = session
        return session

    def _check_room(self, more: int) -> None:
        taken = _encoded_size(self.env) + sum(session.weight for session in self)
        if taken + more > MAX_RECORDS:
            raise errors.ResourceBusyError(
                f"the variables of all sessions take more than {MAX_RECORDS:,} bytes",
                context={"limit": MAX_RECORDS},
                suggestion="delete sessions, or put large values into files",
            )

    def _made(self, id: str, wanted: Mapping[str, Any]) -> Session:
        env = wanted.get("env") or {}
        cwd, user = wanted.get("cwd") or self._workdir, wanted.get("user")
        check_env(env)
        if not isinstance(cwd, str) or not cwd.startswith("/") or "\0" in cwd:
            raise _invalid("cwd", "the cwd of a session is an absolute path")
        if user is not None and not isinstance(user, str):
            raise _invalid("user", "user is not text")
        session = Session(id, cwd, user, env)
        for field in _NAMED:
            if wanted.get(field) is not None:
                setattr(session, field, wanted[field])
        session.cwd = session.here = cwd
        return session

    def use(self, id: str, now: str) -> Session:
        """Return a session; the default one is made if it is not there.

        Raises:
            SessionNotFoundError: there is none of this id.
        """
        if id not in self._all and id == DEFAULT_SESSION:
            return self.create({"id": id}, now)
        return self.get(id)

    def get(self, id: str) -> Session:
        """Return a session; raise as `use`."""
        try:
            return self._all[id]
        except (KeyError, TypeError):
            raise errors.SessionNotFoundError(
                f"no session {id!r}",
                context={"session": id},
                suggestion="create it with create_session",
            ) from None

    def delete(self, id: str) -> Session:
        """Forget a session and return it, with what still has to be ended."""
        session = self.get(id)
        del self._all[id]
        self._forget_state(session)
        return session

    def export(self, budget: int = MAX_EXPORT) -> dict[str, Any]:
        """Return all records for ``session.import`` of a later start.

        What shells left is left out, the largest first, beyond *budget* bytes in all: those sessions
        come back as fresh shells.
        """
        budget -= _encoded_size(self.env) + sum(session.weight for session in self)
        records = []
        for session in sorted(self, key=lambda one: one.size):
            record = session.record() | {"here": session.cwd}
            if session.state is not None:
                left = session.left(session.state) if budget > 0 else {}
                budget -= _encoded_size(left)
                record |= left if left and budget >= 0 else {"state": None}
            records.append(record)
        return {"env": self.env, "sessions": records}

    def restore(self, exported: Mapping[str, Any], now: str) -> None:
        """Take over what `export` returned, in place of sessions of the same ids.

        Raises:
            ValidationFailedError: it is not that.
        """
        records, env = exported.get("sessions") or [], exported.get("env") or {}
        if not isinstance(records, list) or not all(isinstance(one, dict) for one in records):
            raise _invalid("sessions", "sessions is not a list of objects")
        check_env(env)
        self._set_for_all(env)
        for record in records:
            if record.get("id") in self._all:
                self.delete(record["id"])
            session = self.create(record, now)
            changes, pending = record.get("changes") or {}, record.get("pending") or {}
            check_env(changes)
            check_env(pending)
            _set_for_one(session, changes)
            session.pending = dict(pending)
            session.weigh()
            if isinstance(record.get("state"), str):
                self._keep_state(session, spill(_from_text(record["state"])))
                session.here = str(record.get("here") or session.cwd)

    def exists(self, session: Session) -> bool:
        """Whether this very session (not a later one of the same id) is there."""
        return self._all.get(session.id) is session

    def set_env(self, id: str | None, env: Any) -> None:
        """Set or unset variables of one session, or of all and of commands without one.

        Raises:
            ResourceBusyError: the variables of all sessions would take `MAX_RECORDS`.
            SessionNotFoundError: there is no such session.
        """
        check_env(env)
        self._check_room(_encoded_size(env) * (len(self._all) + 1 if id is None else 2))
        if id is None:
            self._set_for_all(env)
        else:
            _set_for_one(self.get(id), env)

    def _set_for_all(self, env: Env) -> None:
        self.env.update(env)
        for session in self:
            own = session.env.keys() | session.changes.keys()
            session.pending.update({name: env[name] for name in env.keys() - own})
            session.weigh()

    def variables(self, session: Session | None, start: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a command before its own `env`."""
        if session is None:
            return layered(start, self.env)
        return layered(start, self.env, session.env, session.changes)

    def reserve(self, session: Session) -> int:
        """Return the bytes that the command which now begins may leave as its state.

        A quarter of what is free: however many run at once, their states stay within the limit.
        """
        session.room = 0
        free = MAX_STATES - sum(max(one.size, one.room) for one in self)
        session.room = max(SMALL_STATE, session.size + max(0, free) // 4)
        return session.room

    def save(self, session: Session, state: int, here: str) -> None:
        """Keep the shell state after a command."""
        self._keep_state(session, state)
        session.here, session.pending = here, {}

    def end_shell(self, session: Session) -> None:
        """Go back to a fresh shell: the last one ended."""
        self._forget_state(session)
        session.here, session.pending = session.cwd, {}

    def _keep_state(self, session: Session, state: int) -> None:
        self._forget_state(session)
        session.state, session.size = state, os.fstat(state).st_size

    def _forget_state(self, session: Session) -> None:
        if session.state is not None:
            self._release(session.state)
        session.state, session.size = None, 0


def _set_for_one(session: Session, env: Env) -> None:
    session.changes.update(env)
    session.pending.update(env)
    session.weigh()


def _encoded_size(value: Any) -> int:
    """Return the bytes of *value* in a frame. Quotes and other alphabets take more than they say."""
    return len(json.dumps(value))


def _as_text(data: bytes) -> str:
    return data.decode() if data[:1] == b"{" else binascii.b2a_base64(data, newline=False).decode()


def _from_text(text: str) -> bytes:
    try:
        return text.encode() if text[:1] == "{" else binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise _invalid("state", "a state is damaged") from error


def _invalid(field: str, message: str) -> errors.ValidationFailedError:
    return errors.ValidationFailedError(message, context={"field": field})
