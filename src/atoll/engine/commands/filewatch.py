"""Watches of files: an open one does not hold off sleep, and it is told when its sandbox ends.

A watch ends with its start of the sandbox: files change while nobody looks, and a watch that went
on in the next start would hide that.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from atoll.engine.lifecycle import failures
from atoll.engine.lifecycle.activity import Use
from atoll.engine.link.link import Endpoint, HungUpError, Link, LinkError
from atoll.engine.sandbox import Sandbox
from atoll.errors import OperationInterruptedError, SandboxDestroyedError, StaleHandleError
from atoll.wire.agent import HEARTBEAT_INTERVAL
from atoll.wire.frames import Frame, Kind
from atoll.wire.sandbox import State

_KINDS = frozenset({Kind.EVENT, Kind.HEARTBEAT, Kind.END, Kind.ERROR})

SILENCE = 3 * HEARTBEAT_INTERVAL
"""Seconds without a frame after which a watch is lost: less than clients wait, so they hear why."""


@asynccontextmanager
async def watch(sandbox: Sandbox, header: Mapping[str, Any]) -> AsyncIterator[AsyncIterator[Frame]]:
    """Yield the events of a watch. Only events hold off sleep, an open watch does not."""
    async with sandbox.use() as endpoint:
        link = await endpoint.open(header)
    async with link:
        yield _events(sandbox, endpoint, link, str(header.get("path", "")))


async def _events(
    sandbox: Sandbox, endpoint: Endpoint, link: Link, path: str
) -> AsyncIterator[Frame]:
    try:
        async for frame in link.frames(SILENCE, {Kind.END, Kind.ERROR}, _KINDS):
            if frame.kind == Kind.EVENT:
                sandbox.activity.note(Use.FILE_EVENT)
            yield frame
    except LinkError as error:
        reason = await _reason(sandbox, endpoint, error)
        yield Frame(Kind.EVENT, _stopped(path, reason))
        yield Frame(Kind.END, b"{}")


async def _reason(sandbox: Sandbox, endpoint: Endpoint, error: LinkError) -> str:
    """Return why the sandbox of a watch is gone.

    Raises:
        SandboxError: it is not gone: its agent failed.
    """
    if isinstance(error, HungUpError) or sandbox.is_in(State.FROZEN):
        return "sandbox_frozen"
    explained = await failures.explained(sandbox, endpoint, error)
    if isinstance(explained, SandboxDestroyedError):
        return "sandbox_destroyed"
    ended = {"stopped", "container"}
    if isinstance(explained, StaleHandleError) or (
        isinstance(explained, OperationInterruptedError)
        and explained.context.get("reason") in ended
    ):
        return "sandbox_stopped"
    raise explained from error


def _stopped(path: str, reason: str) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    event = {
        "type": "stopped",
        "path": path,
        "timestamp": now,
        "isDirectory": True,
        "reason": reason,
    }
    return json.dumps(event).encode()
