"""Requests and answers without I/O: addresses, ids, URLs, headers, bodies, errors, retries.

A request is retried only when the engine did not accept it: no connection could be made, or it
answered `CONTAINER_NOT_READY`. Everything else that goes wrong is told to the caller, because a
second try could do the thing twice.
"""

import os
import re
import secrets
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit
from uuid import UUID

import msgspec

from atoll import errors
from atoll.sdk import _arguments, _calls
from atoll.wire import places
from atoll.wire.base import Request, Result
from atoll.wire.frames import CONTENT_TYPE as FRAMES
from atoll.wire.objects import CALLS_HEADER
from atoll.wire.operation import MAX_HEAD
from atoll.wire.ops import API_VERSION, LIFE_HEADER, RESULT_HEADER, Kind, Op
from atoll.wire.sandbox import SandboxInfo, State, Version

ResultT = TypeVar("ResultT", bound=Result)

CONFIG_FILE = Path("/etc/atoll/atoll.toml")
"""The host's configuration, as the engine reads it."""

START_HINT = "start one with `atoll serve`, or use atoll.local() for a private engine"

RECONNECT_SECONDS = 20.0
"""How long an engine that was reachable before may be away: a restart takes about 2 s, and the
orphan grace of its commands (60 s) counts from the moment it is back."""

READY_SECONDS = 30.0
"""How long a sandbox may answer that it is not ready (`container_timeouts.instance_get`)."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an engine is: a base URL, and the unix socket to reach it by if there is one."""

    url: str
    socket: str | None = None
    api_key: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """The address as a user would write it."""
        if self.socket:
            return f"unix://{self.socket}"
        scheme, _, rest = self.url.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"

    @property
    def remote(self) -> bool:
        """Whether traffic may leave this host (then the proxy settings of the user apply)."""
        host = urlsplit(self.url).hostname
        return self.socket is None and host not in {"localhost", "127.0.0.1", "::1"}


def find_endpoint(url: str | None, api_key: str | None, environment: Mapping[str, str]) -> Endpoint:
    """Return the engine's address: what is given, else ATOLL_URL, else the local socket.

    The local socket is ``engine.sock`` in the state directory, see `state_directory`.

    Raises:
        InvalidConfigError: the address is none of ``http(s)://host:port`` and ``unix:///path``.
    """
    for name, value in (("url", url), ("api_key", api_key)):
        if value is not None and not isinstance(value, str):
            raise errors.InvalidConfigError(
                f"{name} is text, not {type(value).__name__}", context={"setting": name}
            )
    address = url or environment.get("ATOLL_URL")
    if not address:
        config = read_config(None, environment)
        address = f"unix://{state_directory(None, config, environment)}/engine.sock"
    key = api_key or environment.get("ATOLL_API_KEY") or None
    if key and not (key.isascii() and key.isprintable()):
        raise errors.InvalidConfigError(
            "the API key has characters that no header can carry",
            context={"setting": "api_key"},
            suggestion="does it end with a line break? strip() it",
        )
    if endpoint := _parsed(address, key):
        return endpoint
    raise errors.InvalidConfigError(
        f"{address!r} is not the address of an engine",
        context={"url": address},
        suggestion="write http://host:8787, https://host or unix:///path/to/engine.sock",
    )


def _parsed(address: str, key: str | None) -> Endpoint | None:
    try:
        parts = urlsplit(address)
        if parts.port == 0:
            return None
    except ValueError:  # of brackets, or of a port
        return None
    if parts.scheme == "unix" and parts.path.startswith("/") and not parts.netloc:
        return Endpoint("http://engine", parts.path, key)
    if parts.scheme in {"http", "https"} and parts.hostname:
        return Endpoint(address.rstrip("/"), None, key)
    return None


def state_directory(given: str | Path | None, config: str, environment: Mapping[str, str]) -> Path:
    """Return the state directory of a private engine: given, else ATOLL_STATE_DIR, else *config*.

    *config* is the text of an ``atoll.toml``.

    Raises:
        InvalidConfigError: *config* is not TOML, or *given* is no path.
    """
    if given is not None and not isinstance(given, str | Path):
        raise errors.InvalidConfigError(
            f"state_dir is a path, not {type(given).__name__}", context={"setting": "state_dir"}
        )
    variables = ("ATOLL_STATE_DIR", "ATOLL_STORAGE_STATE_DIR")
    told = next((environment[name] for name in variables if environment.get(name)), None)
    try:
        written = tomllib.loads(config).get("storage", {}).get("state_dir")
    except tomllib.TOMLDecodeError as error:
        raise errors.InvalidConfigError(f"the configuration is not TOML: {error}") from error
    default = places.state_dir(os.geteuid(), environment)
    return Path(given or told or written or default).absolute()


def read_config(path: str | Path | None, environment: Mapping[str, str]) -> str:
    """Return the text of a configuration file: *path*, else ATOLL_CONFIG, else the host's own.

    The host's own may be missing, and closed to this user: it may hold keys.

    Raises:
        InvalidConfigError: *path* is no path, or the file cannot be read.
    """
    path = environment.get("ATOLL_CONFIG") or None if path is None else path
    if path is None and not os.access(CONFIG_FILE, os.R_OK):
        return ""
    try:
        return Path(CONFIG_FILE if path is None else path).read_text("utf-8")
    except (TypeError, ValueError, OSError) as error:
        raise errors.InvalidConfigError(
            f"the configuration {path!r} cannot be read: {error}", context={"setting": "config"}
        ) from error


def last_lines(log: bytes) -> str:
    """Return the end of a log, for an error message."""
    return log[-2_000:].decode(errors="replace").strip() or "it ended without a word"


def new_operation_id() -> str:
    """Return an id nobody else has: the idempotency key of one call."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request, ready to be sent. `body` is what the request struct became."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes | None = None


def build_call(
    op: Op[Any, Any],
    params: Mapping[str, str],
    request: Request,
    *,
    key: str | None = None,
) -> Call:
    """Return the HTTP request of an operation (kinds of operations: `atoll.wire.ops`).

    *params* are the placeholders of its path, and which life of the sandbox is meant. Where the operation mutates it gets an idempotency
    key: *key*, else a fresh one.
    """
    check_request(request)
    path = op.path.format_map({name: _quoted(name, value) for name, value in params.items()})
    headers = {"accept": FRAMES if op.kind is Kind.STREAM else "application/json"}
    if calls := _calls.waiting.get():
        headers[CALLS_HEADER] = ",".join(calls)
    if life := params.get("life"):
        headers[LIFE_HEADER] = life
    if op.mutates:
        headers["idempotency-key"] = key or new_operation_id()
    if op.method in {"GET", "DELETE"} or (op.kind is not Kind.UNARY and op.kind is not Kind.STREAM):
        query = _query(request)
        if op.kind is Kind.UPLOAD:
            headers["content-type"] = "application/octet-stream"
        return Call(op.method, _target(f"{path}?{query}" if query else path), headers)
    headers["content-type"] = "application/json"
    return Call(op.method, _target(path), headers, encoded(request))


def encoded(request: Request) -> bytes:
    """Return the JSON of a request.

    Raises:
        ValidationFailedError: a text of it is none that UTF-8 can hold.
    """
    try:
        return msgspec.json.encode(request)
    except UnicodeEncodeError as error:
        raise _no_text(error) from error
    except TypeError as error:  # of the key of a mapping
        raise errors.ValidationFailedError(f"{type(request).__name__}: {error}") from error


def _no_text(error: UnicodeEncodeError) -> errors.ValidationFailedError:
    return errors.ValidationFailedError(
        f"half of a surrogate pair is no text: {error}",
        suggestion="pass bytes where they are taken: as stdin, or as the content of a file",
    )


_NO_TEXT = (bytes, bytearray, memoryview, datetime, date, time, timedelta, UUID, Decimal)

_FAULT = re.compile(r"(?P<what>.*?) - at `\$\.(?P<field>\w+)(?P<rest>.*)`", re.DOTALL)


def check_request(request: Request) -> None:
    """Check the fields of a request; Python lets a caller pass anything.

    Raises:
        ValidationFailedError: one of them has the wrong type; the message names it.
    """
    try:
        # Where text is wanted, base64 or ISO 8601 of these is not what was meant.
        plain = msgspec.to_builtins(request, builtin_types=_NO_TEXT)
        msgspec.convert(plain, type(request), builtin_types=_NO_TEXT)
    except msgspec.ValidationError as error:
        text, fault = str(error), _FAULT.fullmatch(str(error))
        names = {field.encode_name: field.name for field in msgspec.structs.fields(type(request))}
        field = names.get(fault["field"], fault["field"]) if fault else ""
        if fault:
            text = f"{field}{fault['rest']}: {fault['what'].lower()}"
        raise errors.ValidationFailedError(text, context={"field": field}) from error
    except UnicodeEncodeError as error:
        raise _no_text(error) from error
    except TypeError as error:  # a value that no type of the wire can hold
        raise errors.ValidationFailedError(f"{type(request).__name__}: {error}") from error


def _target(path: str) -> str:
    if len(path) > MAX_HEAD:
        raise errors.ValidationFailedError(
            f"the names in this call take {len(path)} bytes of its address, more than {MAX_HEAD}",
            context={"limit": MAX_HEAD},
        )
    return path


def _quoted(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _arguments.wrong(name, "text", value)
    try:
        return quote(value, safe="")
    except UnicodeEncodeError as error:
        raise _no_text(error) from error


def _query(request: Request) -> str:
    pairs = []
    for name, value in msgspec.to_builtins(request).items():
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            try:
                pairs.append(f"{name}={quote(text, safe='', errors='surrogateescape')}")
            except UnicodeEncodeError as error:
                raise _no_text(error) from error
    return "&".join(pairs)


def read_answer(op: Op[Any, ResultT], body: bytes) -> ResultT:
    """Return the result in the body of a successful answer.

    Raises:
        VersionMismatchError: the body is not what this version of the API answers.
    """
    try:
        return msgspec.json.decode(body, type=op.result)
    except msgspec.MsgspecError as error:
        raise _strange(op.name, str(error)) from error


def read_metadata(op: Op[Any, ResultT], headers: Mapping[str, str]) -> ResultT:
    """Return the result that a download carries in its `RESULT_HEADER`."""
    return read_answer(op, headers.get(RESULT_HEADER.lower(), "").encode())


def is_envelope(body: bytes) -> bool:
    """Whether *body* is an error as an engine tells it, not as some other server does."""
    try:
        found = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        return False
    return isinstance(found, dict) and "code" in found


def read_error(status: int, headers: Mapping[str, str], body: bytes) -> errors.SandboxError:
    """Return the typed error of an answer with *status* of 400 or more."""
    if is_envelope(body):
        error = errors.from_wire(msgspec.json.decode(body), status)
    else:
        excerpt = body[:200].decode(errors="replace").strip()
        error = _strange("request", f"HTTP {status} {excerpt}")
    if error.retry_after is None and headers.get("retry-after", "").isdecimal():
        error.retry_after = float(headers["retry-after"])
    error.request_id = error.request_id or headers.get("x-request-id")
    return error


def _strange(what: str, detail: str) -> errors.VersionMismatchError:
    return errors.VersionMismatchError(
        f"the answer to {what} is not one of an Atoll engine: {detail}",
        suggestion="check the address; is something else listening there?",
    )


def check_version(version: Version) -> None:
    """Check that client and engine speak the same API.

    Raises:
        VersionMismatchError: they do not; it says which side to upgrade.
    """
    if version.api != API_VERSION:
        older = "engine" if version.api < API_VERSION else "client (pip install -U atoll)"
        raise errors.VersionMismatchError(
            f"the engine {version.version} speaks API {version.api}, this client {API_VERSION}",
            context={"engine": version.api, "client": API_VERSION},
            suggestion=f"upgrade the {older}",
        )


def unreachable(endpoint: Endpoint, reason: str) -> errors.EngineUnreachableError:
    """Return the error for an engine that cannot be reached."""
    return errors.EngineUnreachableError(
        f"no engine answers at {endpoint.shown}: {reason}",
        context={"url": endpoint.shown},
        suggestion=START_HINT,
    )


def lost(operation: str, reason: str) -> errors.OperationInterruptedError:
    """Return the error for a request that was sent and whose outcome is not known."""
    return errors.OperationInterruptedError(
        f"the connection to the engine was lost during {operation}: {reason}",
        context={"operation": operation},
        suggestion="it is not known whether it was done; look before trying again",
    )


class Backoff:
    """Waiting times between tries of one request, growing, with jitter, inside a deadline."""

    FIRST = 0.02
    LARGEST = 1.0

    def __init__(self, deadline: float, random: Callable[[], float]) -> None:
        self._deadline = deadline
        self._random = random
        self._next = self.FIRST

    def wait(self, now: float, retry_after: float | None = None) -> float | None:
        """Return the seconds to wait before the next try, or None when the time is over."""
        left = self._deadline - now
        if left <= 0:
            return None
        delay = self._next * (0.5 + self._random() / 2)
        self._next = min(self._next * 2, self.LARGEST)
        return min(max(delay, retry_after or 0.0), left)


_STATES_0_12 = {
    State.CREATED: "stopped",
    State.STOPPED: "stopped",
    State.STARTING: "starting",
    State.RUNNING: "healthy",
}


def state_word(info: SandboxInfo) -> str:
    """Return the state in the words of 0.12 clients (sdk.md "Results and streams")."""
    if info.state is State.STOPPED and info.exit_code:
        return "stopped_with_code"
    return _STATES_0_12.get(info.state, str(info.state))
