"""Shell sessions: made and listed by the agent, carried across a sleep by the store.

What the agent exports is kept as it is and never interpreted here. A failure to keep or restore
costs the state, not the stop or the start.
"""

from typing import Any, TypeVar

import msgspec
import structlog

from atoll.engine.link import Endpoint, LinkError
from atoll.engine.store import Store
from atoll.errors import SandboxError
from atoll.wire.base import Result
from atoll.wire.process import CreateSessionRequest, EnvRequest, SessionInfo, SessionList

ResultT = TypeVar("ResultT", bound=Result)

log = structlog.get_logger(__name__)

TIMEOUT = 10.0
"""Seconds for either direction."""


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


async def keep(store: Store, namespace: str, id: str, endpoint: Endpoint) -> None:
    """Ask the agent for its sessions and store them."""
    try:
        body = await endpoint.call({"op": "session.export"}, TIMEOUT)
        await store.save_sessions(namespace, id, body)
    except (LinkError, SandboxError) as error:
        log.warning("session state not kept", sandbox=id, reason=str(error))


async def restore(store: Store, namespace: str, id: str, endpoint: Endpoint) -> None:
    """Give a fresh agent the sessions that were stored, if any."""
    body = await store.sessions(namespace, id)
    if body is None:
        return
    try:
        state = msgspec.json.decode(body, type=dict[str, Any])
        await endpoint.call({**state, "op": "session.import"}, TIMEOUT)
    except (LinkError, SandboxError, msgspec.MsgspecError) as error:
        log.warning("session state not restored", sandbox=id, reason=str(error))
