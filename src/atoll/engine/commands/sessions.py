"""Shell sessions: made and listed by the agent, carried over sleeps and crashes by the store.

What the agent exports is kept as it is; only names and directories are read from it, for callers who
ask while the sandbox sleeps. It is kept when the sandbox stops, and while it runs some seconds
after a session was used: a container that dies by itself costs no more than that. A failure to
keep or restore costs the state, not the stop or the start.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec
import structlog

from atoll.engine.link.link import Endpoint, LinkError
from atoll.engine.store.store import Store
from atoll.errors import SandboxError
from atoll.wire.base import Result
from atoll.wire.process import CreateSessionRequest, EnvRequest, SessionInfo, SessionList

ResultT = TypeVar("ResultT", bound=Result)

log = structlog.get_logger(__name__)

TIMEOUT = 10.0
"""Seconds for either direction."""

KEEP_RATE = 256 << 10
"""Bytes a second that sessions of one sandbox may write to the store while it runs: the usual few
KiB are kept at every look, 7 MiB of state twice a minute."""


class Exported(msgspec.Struct):
    """What is read of an exported session."""

    id: str
    name: str | None = None
    here: str = "/workspace"
    user: str | None = None
    isolation: bool = False
    created_at: datetime | None = None
    command_timeout: float | None = None

    def info(self) -> SessionInfo:
        """Return what callers are told."""
        timeout = self.command_timeout
        return SessionInfo(
            id=self.id,
            name=self.name,
            cwd=self.here,
            user=self.user,
            isolation=self.isolation,
            created_at=self.created_at,
            command_timeout_ms=None if timeout is None else round(timeout * 1000),
        )


class Export(msgspec.Struct):
    """What is read of an export."""

    sessions: list[Exported] = []


async def create(endpoint: Endpoint, wanted: CreateSessionRequest) -> SessionInfo:
    """Make a session.

    Raises:
        SessionAlreadyExistsError: one of this id exists.
    """
    fields = msgspec.structs.asdict(wanted)
    timeout = fields.pop("command_timeout_ms")
    fields["command_timeout"] = None if timeout is None else timeout / 1000
    return await _answer(endpoint, {"op": "session.create", **fields}, SessionInfo)


async def listing(endpoint: Endpoint) -> SessionList:
    """Return all sessions."""
    return await _answer(endpoint, {"op": "session.list"}, SessionList)


async def set_env(endpoint: Endpoint, wanted: EnvRequest) -> None:
    """Set variables of a session, or of the whole sandbox."""
    await endpoint.call({"op": "session.env", "session": wanted.session, "env": wanted.env})


async def _answer(endpoint: Endpoint, header: dict[str, Any], kind: type[ResultT]) -> ResultT:
    reply = await endpoint.call(header)
    try:
        return msgspec.json.decode(reply, type=kind)
    except msgspec.MsgspecError as error:
        raise LinkError(f"the agent's answer is malformed ({error})") from error


class Carried:
    """The sessions of one sandbox as the store has them.

    Args:
        store: where they are kept.
        namespace: of the sandbox.
        id: of the sandbox.
    """

    def __init__(self, store: Store, namespace: str, id: str) -> None:
        self._store = store
        self._key = namespace, id
        self._lock = asyncio.Lock()
        self._changed = False
        self._due = 0.0

    def note_change(self) -> None:
        """Remember that a session was used."""
        self._changed = True

    async def keep_changes(self, endpoint: Endpoint, current: Callable[[], bool]) -> None:
        """Keep them if one was used since; as `keep`, but not more often than `KEEP_RATE` allows."""
        if self._changed and time.monotonic() >= self._due:
            await self.keep(endpoint, current)

    async def keep(self, endpoint: Endpoint, current: Callable[[], bool]) -> None:
        """Ask the agent for its sessions and store them.

        Args:
            current: whether they are still the sandbox's: it may be destroyed meanwhile.
        """
        async with self._lock:
            self._changed = False
            try:
                body = await endpoint.call({"op": "session.export"}, TIMEOUT)
                self._due = time.monotonic() + len(body) / KEEP_RATE
                if current():
                    await self._store.save_sessions(*self._key, body)
            except (LinkError, SandboxError) as error:
                log.warning("session state not kept", sandbox=self._key[1], reason=str(error))

    async def restore(self, endpoint: Endpoint) -> None:
        """Give a fresh agent the sessions that were kept, if any."""
        body = await self._store.sessions(*self._key)
        if body is None:
            return
        try:
            state = msgspec.json.decode(body, type=dict[str, Any])
            await endpoint.call({**state, "op": "session.import"}, TIMEOUT)
        except (LinkError, SandboxError, msgspec.MsgspecError) as error:
            log.warning("session state not restored", sandbox=self._key[1], reason=str(error))

    async def listing(self) -> SessionList:
        """Return what was kept: what a sandbox that sleeps has."""
        body = await self._store.sessions(*self._key)
        try:
            found = msgspec.json.decode(body or b"{}", type=Export).sessions
        except msgspec.MsgspecError as error:
            log.warning("session state is damaged", sandbox=self._key[1], reason=str(error))
            found = []
        return SessionList(sessions=[session.info() for session in found])

    async def forget(self) -> None:
        """The sandbox is destroyed: the next of its name starts without."""
        async with self._lock:
            await self._store.delete_sessions(*self._key)
