"""Sandboxes and their sessions: made, asked after, removed."""

import base64
import secrets

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from atoll.engine.commands import calls
from atoll.engine.engine import Engine
from atoll.errors import SandboxError
from atoll.server import shapes
from atoll.server.bridge import requests
from atoll.wire.process import CreateSessionRequest
from atoll.wire.sandbox import State


class Id(msgspec.Struct, frozen=True):
    """A new sandbox or session."""

    id: str


class Running(msgspec.Struct, frozen=True):
    """Whether a sandbox runs."""

    running: bool


class Session(msgspec.Struct):
    """Body of a new session."""

    id: str | None = None
    cwd: str | None = None
    env: dict[str, str | None] = {}


class Deleted(msgspec.Struct, frozen=True, rename="camel"):
    """A session was deleted."""

    success: bool
    session_id: str
    timestamp: str


def encoded(value: msgspec.Struct) -> Response:
    """Return the JSON answer of *value*."""
    return Response(msgspec.json.encode(value), media_type=shapes.JSON)


def new_id() -> str:
    """Return 128 random bits as lower-case base32."""
    return base64.b32encode(secrets.token_bytes(16)).decode().rstrip("=").lower()


async def create(_engine: Engine, _request: Request) -> Response:
    """Give out an id that nobody can guess. Its first use makes the sandbox."""
    return encoded(Id(new_id()))


async def running(engine: Engine, request: Request) -> Response:
    """Tell whether the sandbox runs; neither wakes it nor counts as its use."""
    found = requests.sandbox(engine, request)
    try:
        record = await found.load()
    except SandboxError:
        return encoded(Running(False))
    return encoded(Running(record is not None and record.state is State.RUNNING))


async def delete(engine: Engine, request: Request) -> Response:
    """Remove the sandbox with its files, also one that never was."""
    await requests.sandbox(engine, request).destroy()
    return Response(status_code=204)


async def create_session(engine: Engine, request: Request) -> Response:
    """Make a session."""
    wanted = await requests.body(engine, request, Session, optional=True)
    id = requests.checked_session(wanted.id) if wanted.id is not None else None
    made = await calls.create_session(
        requests.sandbox(engine, request),
        CreateSessionRequest(id=id, cwd=wanted.cwd, env=wanted.env),
    )
    return encoded(Id(made.id))


async def delete_session(engine: Engine, request: Request) -> Response:
    """End a session with all that runs in it."""
    id = requests.checked_session(request.path_params["session"])
    await calls.delete_session(requests.sandbox(engine, request), id)
    return encoded(Deleted(True, id, shapes.timestamp()))
