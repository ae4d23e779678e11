"""What a request of the bridge names: sandbox, session, a place in the workspace, a JSON body.

A sandbox made here is an ordinary one, in the namespace of the caller's key, or `NAMESPACE` where
the key has none: the SDK finds it there by the same id.
"""

import re
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.requests import HTTPConnection, Request

from atoll.engine.commands import calls
from atoll.engine.engine import Engine
from atoll.engine.sandbox import Sandbox
from atoll.errors import SessionAlreadyExistsError
from atoll.server import answer
from atoll.server.bridge.failures import invalid
from atoll.server.underway import Call
from atoll.wire.process import CreateSessionRequest

NAMESPACE = "Sandbox"
WORKSPACE = "/workspace"

T = TypeVar("T")

_SESSION = re.compile(r"[a-zA-Z0-9._-]{1,128}")


def namespace(request: HTTPConnection) -> str:
    """Return the namespace in which the caller's sandboxes are."""
    call: Call = request.scope["call"]
    return call.caller.namespace or NAMESPACE


def sandbox(engine: Engine, request: HTTPConnection) -> Sandbox:
    """Return the sandbox of the path; nothing is made or started.

    Raises:
        InvalidSandboxIdError: the id breaks the rules.
    """
    return engine.sandbox(namespace(request), request.path_params["id"])


def session(request: HTTPConnection) -> str | None:
    """Return the session that the ``Session-Id`` header names, or None.

    Raises:
        ValidationFailedError: it cannot be one.
    """
    given = request.headers.get("session-id")
    return checked_session(given) if given else None


def checked_session(id: str) -> str:
    """Return *id*; raise as `session`."""
    if not _SESSION.fullmatch(id):
        raise invalid("Invalid session ID format")
    return id


async def known_session(found: Sandbox, id: str | None) -> str | None:
    """Return *id* once the sandbox has this session: the first use of an id makes it."""
    if id is not None and id != calls.DEFAULT_SESSION:
        with suppress(SessionAlreadyExistsError):
            await calls.create_session(found, CreateSessionRequest(id=id))
    return id


def workspace_path(path: str, what: str = "path") -> str:
    """Return *path*, seen from the workspace, without ``.`` and ``..``.

    Names only are looked at: where links lead is the sandbox's own affair, from inside.

    Raises:
        ValidationFailedError: it leads out of the workspace (status 403).
    """
    parts: list[str] = []
    for part in (path if path.startswith("/") else f"{WORKSPACE}/{path}").split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in {"", "."}:
            parts.append(part)
    resolved = "/" + "/".join(parts)
    if resolved != WORKSPACE and not resolved.startswith(WORKSPACE + "/"):
        raise invalid(f"{what} must resolve to a location within {WORKSPACE}", 403)
    return resolved


def file_path(request: Request) -> str:
    """Return the absolute path of a ``file`` route, which has it without the leading slash.

    Raises:
        ValidationFailedError: it is empty, not UTF-8, or leads out of the workspace.
    """
    # The raw path: the server replaces bytes that are not UTF-8, which would be another file.
    raw = request.scope["raw_path"].split(b"?")[0].split(b"/file/", 1)[1]
    try:
        path = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise invalid("file path must be UTF-8") from error
    if not path:
        raise invalid("file path must not be empty")
    return workspace_path("/" + path)


async def body(engine: Engine, request: Request, kind: type[T], *, optional: bool = False) -> T:
    """Return the JSON body as a *kind*; other fields than its own are ignored.

    Raises:
        ValidationFailedError: it is not JSON, or a field is missing or of a wrong type.
    """
    data = await answer.read_json(request, engine.settings.server.max_body)
    if optional and not data.strip():
        data = b"{}"
    try:
        return msgspec.convert(_parsed(data), kind)
    except msgspec.ValidationError as error:
        raise invalid(f"Invalid request: {error}") from error


def _parsed(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise invalid("Invalid JSON body") from error
