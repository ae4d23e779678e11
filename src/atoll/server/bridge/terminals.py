"""Terminals of a sandbox: which there are, how one is opened or found again.

A terminal is an operation of the agent, and its id says whose it is, so the agent's own list is
the only record: it outlives the engine, and all of it ends with the sandbox. A terminal without a
session belongs to its connection and ends with it. That of a session is one, whoever connects;
it stays when nobody does, until its shell, its session or the sandbox ends.
"""

import hashlib
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec

from atoll.engine.commands import calls
from atoll.engine.commands.operations import Listed, Listing, exec_header
from atoll.engine.link.link import Endpoint, LinkError
from atoll.engine.sandbox import Sandbox
from atoll.errors import ContainerUnavailableError
from atoll.wire.frames import Frame, Kind
from atoll.wire.process import ExecRequest, ResizeRequest

MAX_TERMINALS = 100
"""Terminals of one sandbox at once, each with a supervisor of about 1 MB. Clients of the bridge
keep up to 64 and open the next before they close one."""

SHELL = ["/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec sh"]
"""The image's bash, or else its sh. It is interactive, as it finds a terminal."""

_PREFIX = "pty:"


class Wanted(NamedTuple):
    """A terminal as it is asked for; sizes in characters."""

    cols: int = 80
    rows: int = 24
    shell: str | None = None
    session: str | None = None


class Choice(NamedTuple):
    """Which operation is the terminal, and whether it runs already."""

    id: str
    runs: bool


def choose(session: str | None, listed: Sequence[Listed]) -> Choice:
    """Return the operation that is the terminal of *session* (None: a new one). Pure.

    Callers that come at the same time choose the same id, and the agent starts it once.

    Raises:
        ContainerUnavailableError: the sandbox has too many terminals.
    """
    terminals = [one for one in listed if one.id.startswith(_PREFIX)]
    prefix = _PREFIX
    if session is not None:
        prefix += hashlib.sha256(session.encode()).hexdigest()[:32] + ":"
        for one in terminals:
            if one.running and one.id.startswith(prefix):
                return Choice(one.id, runs=True)
    if sum(one.running for one in terminals) >= MAX_TERMINALS:
        raise ContainerUnavailableError(
            f"the sandbox has {MAX_TERMINALS} terminals", context={"reason": "capacity"}
        )
    if session is None:
        return Choice(prefix + secrets.token_hex(12), runs=False)
    # Not their count: the agent forgets the earlier ones first.
    earlier = [int(one.id.removeprefix(prefix)) for one in terminals if one.id.startswith(prefix)]
    return Choice(f"{prefix}{max(earlier, default=-1) + 1}", runs=False)


@asynccontextmanager
async def opened(found: Sandbox, wanted: Wanted) -> AsyncIterator[tuple[str, AsyncIterator[Frame]]]:
    """Open a terminal, or join that of the session; yield its operation and its frames.

    Raises:
        SandboxError: the sandbox cannot start, or has too many terminals.
    """
    async with found.use() as endpoint:
        choice = choose(wanted.session, await _listed(endpoint))
        operations = found.running_operations(choice.id)
        if choice.runs:
            await resize(found, choice.id, wanted.cols, wanted.rows)
            header = {"op": "attach", "id": choice.id, "from_offset": 0}
        else:
            header = _header(wanted, choice.id)
        async with operations.run(header) as frames:
            yield choice.id, frames


def _header(wanted: Wanted, id: str) -> dict[str, object]:
    request = ExecRequest(
        command=[wanted.shell] if wanted.shell else SHELL,
        timeout_ms=None,
        open_stdin=True,
        pty=True,
        cols=wanted.cols,
        rows=wanted.rows,
        shell_state=False,
    )
    shared = wanted.session is not None
    header = exec_header(request, id, session=wanted.session, cancel_on_drop=not shared)
    return {**header, "detach": shared}


async def _listed(endpoint: Endpoint) -> list[Listed]:
    reply = await endpoint.call({"op": "operations"})
    try:
        return msgspec.json.decode(reply, type=Listing).operations
    except msgspec.MsgspecError as error:
        raise LinkError(f"the agent's list of operations is malformed ({error})") from error


async def resize(found: Sandbox, id: str, cols: int, rows: int) -> None:
    """Tell the terminal its new size."""
    payload = msgspec.json.encode(ResizeRequest(cols=cols, rows=rows))
    await calls.control(found, id, Kind.RESIZE, payload)
