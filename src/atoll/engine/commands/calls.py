"""What callers do with a running sandbox: commands, their input and control, watches, variables.

Each but reading wakes the sandbox where it must and holds off its sleep while it lasts; whatever
goes wrong on the way to the agent is told in terms of what happened to the sandbox
(`Sandbox.explain`).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from atoll.engine.commands import sessions
from atoll.engine.commands.operations import exec_header
from atoll.engine.lifecycle import failures, lives
from atoll.engine.lifecycle.faults import Faults
from atoll.engine.link.link import LinkError
from atoll.engine.sandbox import Sandbox
from atoll.wire.frames import Frame, Kind
from atoll.wire.process import (
    CreateSessionRequest,
    EnvRequest,
    ExecRequest,
    SessionInfo,
    SessionList,
)

DEFAULT_SESSION = "default"


def default_session(sandbox: Sandbox, request: ExecRequest) -> str | None:
    """Return the session a command runs in that names none; None: a fresh process."""
    wanted = bool(sandbox.wanted.enable_default_session) and request.shell_state
    return DEFAULT_SESSION if wanted and isinstance(request.command, str) else None


@asynccontextmanager
async def exec(
    sandbox: Sandbox,
    request: ExecRequest,
    operation: str,
    *,
    cancel_on_drop: bool,
    stdin: AsyncIterator[bytes] | None,
) -> AsyncIterator[AsyncIterator[Frame]]:
    """Run a command, or attach to the one of this *operation* id, and yield its frames."""
    async with sandbox.use():
        header = exec_header(
            request,
            operation,
            session=request.session or default_session(sandbox, request),
            cancel_on_drop=cancel_on_drop,
        )
        operations = sandbox.running_operations(operation)
        faults = sandbox.shared.faults
        faults.at("exec.asked")
        try:
            async with operations.run(header, stdin, close=not request.open_stdin) as frames:
                yield _watched(faults, frames)
            faults.at("exec.ended")
        finally:
            if header["session"]:
                sandbox.carried.note_change()


async def _watched(faults: Faults, found: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
    async for frame in found:
        faults.at("exec.running")
        yield frame


@asynccontextmanager
async def attach(
    sandbox: Sandbox, operation: str, from_offset: int
) -> AsyncIterator[AsyncIterator[Frame]]:
    """Yield the frames of a running (or just finished) operation from an offset on.

    Raises:
        OperationNotFoundError: there is none of this id; a sandbox is not woken for it.
    """
    async with sandbox.use(operation=operation):
        header = {"op": "attach", "id": operation, "from_offset": from_offset}
        async with sandbox.running_operations(operation).run(header) as frames:
            yield frames


async def control(sandbox: Sandbox, operation: str, kind: Kind, payload: bytes = b"") -> None:
    """Send a message to a running operation; raise as `attach`."""
    async with sandbox.use(operation=operation):
        await sandbox.running_operations(operation).control(operation, [(kind, payload)])


async def feed(
    sandbox: Sandbox, operation: str, body: AsyncIterator[bytes], *, close: bool
) -> None:
    """Send standard input to a running operation; raise as `attach`."""
    async with sandbox.use(operation=operation):
        await sandbox.running_operations(operation).feed(operation, body, close=close)


async def set_env(sandbox: Sandbox, wanted: EnvRequest) -> None:
    """Set variables of the sandbox (remembered, also while it sleeps) or of one session."""
    if wanted.session is None:
        await sandbox.set_env(wanted.env)
        return
    async with sandbox.use() as endpoint:
        await sessions.set_env(endpoint, wanted)
    sandbox.carried.note_change()


async def list_sessions(sandbox: Sandbox) -> SessionList:
    """Return the sessions, of a sandbox that sleeps those it wakes with. Wakes nothing."""
    found = await _listed(sandbox)
    life = lives.of(sandbox.record) if sandbox.record else None
    return SessionList(sessions=[replace(info, life=life) for info in found.sessions])


async def _listed(sandbox: Sandbox) -> SessionList:
    if endpoint := await sandbox.awake():
        try:
            return await sessions.listing(endpoint)
        except LinkError as error:
            reason = await failures.explained(sandbox, endpoint, error)
            if await sandbox.awake():
                raise reason from error
    return await sandbox.carried.listing()


async def create_session(sandbox: Sandbox, wanted: CreateSessionRequest) -> SessionInfo:
    """Make a session; raise as `sessions.create`."""
    async with sandbox.use() as endpoint:
        made = await sessions.create(endpoint, wanted)
        life = lives.of(sandbox.entry.existing)
    sandbox.carried.note_change()
    return replace(made, life=life)


async def delete_session(sandbox: Sandbox, id: str) -> None:
    """End a session with all that runs in it."""
    async with sandbox.use() as endpoint:
        await endpoint.call({"op": "session.delete", "id": id})
    sandbox.carried.note_change()
