"""What a caller may pass: commands, durations, encodings, options. Checked before any I/O.

The engine checks all of it again with the same rules; here a mistake costs no request and the
error's traceback ends in the caller's own line.
"""

import base64
import codecs
import re
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from atoll import errors
from atoll.sdk import _secret
from atoll.sdk._results import ContainerTimeouts
from atoll.wire.base import Duration, to_ms
from atoll.wire.egress import OutboundHandler
from atoll.wire.sandbox import SandboxOptions

T = TypeVar("T")


LONGEST_DELAY = 10 * 365 * 86_400_000
"""Milliseconds. Seconds since 1970 are five times as many: who passes those means a time."""


def check_command(command: str | Sequence[str]) -> str | list[str]:
    """Return the command as it goes on the wire.

    Raises:
        InvalidCommandError: it is empty, has a NUL byte, or is no list of text.
    """
    arguments = [command] if isinstance(command, str) else command
    if not isinstance(arguments, Sequence) or not all(
        isinstance(argument, str) for argument in arguments
    ):
        problem = "a command is text or a list of texts"
    elif not arguments or not arguments[0].strip():
        problem = "the command is empty"
    elif any("\0" in argument for argument in arguments):
        problem = "a command cannot contain a NUL byte"
    else:
        return command if isinstance(command, str) else list(arguments)
    raise errors.InvalidCommandError(problem, suggestion="pass input with stdin=, not as text")


def check_encoding(encoding: str) -> str:
    """Return the encoding of output: the name of a codec, or "base64".

    Raises:
        ValidationFailedError: there is no such codec for text.
    """
    try:
        if encoding != "base64":
            codecs.getincrementaldecoder(encoding)("replace").decode("".encode(encoding))
        return encoding
    except (LookupError, TypeError, ValueError):
        pass
    raise errors.ValidationFailedError(
        f"{encoding!r} is not an encoding of text",
        context={"field": "encoding"},
        suggestion='use the name of a codec, or "base64"; the bytes are always in stdout_bytes',
    )


def check_view(encoding: str | None) -> None:
    """Check the form in which a file's content is wanted.

    Raises:
        ValidationFailedError: it is neither a codec of text nor "base64", "bytes" or "none".
    """
    if encoding not in (None, "bytes", "none"):  # what is no text may have no hash
        check_encoding(encoding)


def check_content(field: str, content: object) -> None:
    """Check what is to be sent as input or as the content of a file.

    Raises:
        ValidationFailedError: it is neither text, bytes, a file object nor an iterable.
    """
    if not hasattr(content, "read") and not isinstance(content, Iterable | AsyncIterable):
        raise errors.ValidationFailedError(
            f"{field} is text, bytes, a file object or an iterable of those, "
            f"not {type(content).__name__}",
            context={"field": field},
        )


def mapping(field: str, given: Mapping[str, T] | None) -> dict[str, T]:
    """Return a mapping as a dict of its own, empty for None.

    Raises:
        ValidationFailedError: it is none.
    """
    if given is not None and not isinstance(given, Mapping):
        raise errors.ValidationFailedError(
            f"{field} is a mapping of names to values, not {type(given).__name__}",
            context={"field": field},
            suggestion=f'write {field}={{"NAME": "value"}}',
        )
    if any(isinstance(value, _secret.Secret) for value in (given or {}).values()):
        raise errors.ValidationFailedError(
            f"{field} has no secrets: those are of a sandbox as a whole",
            context={"field": field},
            suggestion="give it to get_sandbox(env=…), or the class's env_vars",
        )
    return dict(given or {})


def listed(field: str, given: Iterable[T]) -> list[T]:
    """Return what is given as a list of its own.

    Raises:
        ValidationFailedError: it is none, or one text, whose letters nobody means.
    """
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
        return list(given)
    raise wrong(field, "a list", given)


def callbacks(**given: object) -> None:
    """Refuse what cannot be called, before anything was done that it is to be told of.

    Raises:
        ValidationFailedError: one is neither None nor a function.
    """
    for field, one in given.items():
        if one is not None and not callable(one):
            raise wrong(field, "a function", one)


def flags(**given: object) -> None:
    """Raise `ValidationFailedError` for what is neither True nor False: much counts as true."""
    for field, one in given.items():
        if not isinstance(one, bool):
            raise wrong(field, "True or False", one)


def wrong(field: str, wanted: str, given: object) -> errors.ValidationFailedError:
    """Return the error of an argument that is something else than it has to be."""
    message = f"{field} is {wanted}, not {type(given).__name__}"
    return errors.ValidationFailedError(message, context={"field": field})


def user(given: str | int | None) -> str | None:
    """Return a user as it goes on the wire: ids may be numbers."""
    return str(given) if isinstance(given, int) else given


def milliseconds(field: str, duration: Duration | None) -> int | None:
    """Return a duration in milliseconds.

    Raises:
        ValidationFailedError: it is not one.
    """
    try:
        return None if duration is None else to_ms(duration)
    except (TypeError, ValueError) as error:
        raise errors.ValidationFailedError(str(error), context={"field": field}) from error


def later(when: datetime | Duration) -> tuple[datetime | None, int | None]:
    """Return when something is due: the time, or how many milliseconds from now.

    Raises:
        ValidationFailedError: a time without a zone, or a delay of more than 10 years.
    """
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise errors.ValidationFailedError(
                "a time needs a time zone",
                context={"field": "when"},
                suggestion="write datetime.now(UTC) + timedelta(…)",
            )
        return when, None
    delay = milliseconds("when", when)
    if delay is not None and delay > LONGEST_DELAY:
        raise errors.ValidationFailedError(
            f"{when!r} is more than 10 years from now",
            context={"field": "when"},
            suggestion="a number is seconds from now; for a time pass a datetime with a time zone",
        )
    return None, delay


def lifetime(ttl: Duration | None) -> int | None:
    """Return how long something is kept in milliseconds, None for the default.

    Raises:
        ValidationFailedError: it is not a duration, or zero.
    """
    limit = milliseconds("ttl", ttl)
    if limit == 0:
        raise errors.ValidationFailedError(
            "a ttl of zero would remove it as soon as it is made",
            context={"field": "ttl"},
            suggestion="leave ttl out for the default",
        )
    return limit


def time_limit(timeout: Duration | None) -> int | None:
    """Return a time limit in milliseconds, None for none.

    Raises:
        ValidationFailedError: it is not a duration, or zero.
    """
    limit = milliseconds("timeout", timeout)
    if limit == 0:
        raise errors.ValidationFailedError(
            "a time limit of zero would end the command before it starts",
            context={"field": "timeout"},
            suggestion="use None for no limit",
        )
    return limit


def size_bytes(field: str, size: int | str) -> int:
    """Return a size in bytes: a number of them, or text like "500MB" or "2GB".

    Raises:
        ValidationFailedError: it is neither.
    """
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match:
        return int(float(match[1]) * _UNITS[match[2]])
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    raise errors.ValidationFailedError(
        f"{size!r} is not a size",
        context={"field": field},
        suggestion='give bytes, or a number with kB, MB, GB or TB: "2GB"',
    )


_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?(B|kB|MB|GB|TB)")
_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def encode_content(content: str | bytes | bytearray | memoryview, encoding: str | None) -> bytes:
    """Return the bytes of a file's content.

    Raises:
        ValidationFailedError: it is not base64, or cannot be encoded.
    """
    try:
        if encoding == "base64":
            return base64.b64decode(content, validate=True)
        return content.encode(encoding or "utf-8") if isinstance(content, str) else bytes(content)
    except (ValueError, LookupError, TypeError) as error:
        raise errors.ValidationFailedError(
            f"the content is not {encoding or 'utf-8'}: {error}", context={"field": "encoding"}
        ) from error


def check_streamed_encoding(encoding: str | None) -> None:
    """Check the encoding of content that is streamed.

    Raises:
        ValidationFailedError: streams are bytes, or text that becomes UTF-8.
    """
    if encoding not in {None, "utf-8", "utf8"}:
        raise errors.ValidationFailedError(
            f"content that is streamed cannot be {encoding}",
            context={"field": "encoding"},
            suggestion="give an iterable of bytes, or the whole content",
        )


def globs(
    include: Sequence[str] | None, exclude: Sequence[str] | None
) -> tuple[list[str] | None, list[str] | None]:
    """Return the globs of a watch or comparison as they go on the wire.

    Raises:
        ValidationFailedError: both are given, or one of them is a single text.
    """
    if include is not None and exclude is not None:
        raise errors.ValidationFailedError(
            "include and exclude exclude each other",
            context={"field": "include"},
            suggestion="name what to report, or what not to report",
        )
    for field, value in (("include", include), ("exclude", exclude)):
        if value is not None and (isinstance(value, str) or not isinstance(value, Iterable)):
            raise wrong(field, "a list of globs", value)
    return (
        None if include is None else list(include),
        None if exclude is None else list(exclude),
    )


def hosts(given: Iterable[str] | None) -> list[str] | None:
    """Return a list of hosts as it goes on the wire.

    Raises:
        ValidationFailedError: it is a single text or a mapping, or something in it is no text.
    """
    if given is None:
        return None
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise errors.ValidationFailedError(
            f"hosts are a list of texts, not {type(given).__name__}",
            suggestion=f"write [{given!r}]" if isinstance(given, str) else None,
        )
    found = list(given)
    if not all(isinstance(host, str) for host in found):
        raise errors.ValidationFailedError("hosts are a list of texts")
    return found


def outbound_handler(given: str | Mapping[str, Any]) -> OutboundHandler:
    """Return a handler as it goes on the wire; raise `ValidationFailedError` where it is none."""
    if isinstance(given, str):
        return OutboundHandler(name=given)
    try:
        return msgspec.convert(given, OutboundHandler)
    except msgspec.ValidationError as error:
        raise errors.ValidationFailedError(
            f"an outbound handler is a name, or a mapping of name and params: {error}"
        ) from error


_DURATIONS = ("sleep_after", "ttl", "queue")


def sandbox_options(**options: Any) -> SandboxOptions | None:
    """Return the options of `get_sandbox` that were given (not None); None when there are none.

    Raises:
        ValidationFailedError: one of them is malformed; the message names it.
    """
    for name in _DURATIONS:
        options[f"{name}_ms"] = milliseconds(name, options.pop(name, None))
    if isinstance(options.get("env"), Mapping):
        options["env"], options["secrets"] = _secret.split(options["env"])
    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        return None
    names = {field.name: field.encode_name for field in msgspec.structs.fields(SandboxOptions)}
    try:
        return msgspec.convert(
            {names[name]: _plain(value) for name, value in given.items()}, SandboxOptions
        )
    except msgspec.ValidationError as error:
        raise errors.ValidationFailedError(f"get_sandbox: {error}") from error


def _plain(value: Any) -> Any:
    """Return a struct or mapping as a dict with the names of the wire."""
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if isinstance(value, Mapping) and value.keys() & {"memory_mib", "disk_mb"}:
        return {_CAMEL.get(name, name): item for name, item in value.items()}
    if isinstance(value, Mapping):
        return {key: _plain(v) if isinstance(v, msgspec.Struct) else v for key, v in value.items()}
    return value


_CAMEL = {"memory_mib": "memoryMib", "disk_mb": "diskMb"}

_TIMEOUT_VARIABLES = {
    "instance_get": "SANDBOX_INSTANCE_TIMEOUT_MS",
    "port_ready": "SANDBOX_PORT_TIMEOUT_MS",
    "wait_interval": "SANDBOX_POLL_INTERVAL_MS",
}


def timeouts(
    given: ContainerTimeouts | Mapping[str, Duration] | None, environment: Mapping[str, str]
) -> ContainerTimeouts:
    """Return how long to wait for containers: what is given, else the variable, else the default.

    Raises:
        ValidationFailedError: an unknown name, or not a duration.
    """
    if isinstance(given, ContainerTimeouts):
        return given
    given = mapping("container_timeouts", given)
    if unknown := given.keys() - _TIMEOUT_VARIABLES.keys():
        raise errors.ValidationFailedError(
            f"container_timeouts has no {min(unknown)!r}",
            context={"field": "container_timeouts"},
            suggestion=f"there are {', '.join(_TIMEOUT_VARIABLES)}",
        )
    seconds: dict[str, float] = {}
    for name, variable in _TIMEOUT_VARIABLES.items():
        written = f"{environment[variable]}ms" if environment.get(variable) else None
        limit = milliseconds(name if name in given else variable, given.get(name, written))
        if limit is not None:
            seconds[name] = limit / 1000
    return ContainerTimeouts(**seconds)
