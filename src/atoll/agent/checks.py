"""What a request may ask for: refused here before anything is started for it. Pure."""

import os
from collections.abc import Mapping
from typing import Any, Final

from atoll import errors


def check(header: Mapping[str, Any]) -> None:
    """Refuse a request that could never run.

    Raises:
        InvalidCommandError: see `check_command`.
        ValidationFailedError: another field is wrong.
    """
    check_command(header.get("command"))
    check_env(header.get("env") or {})
    directory(header.get("cwd"), "/")
    for field, (low, high) in _NUMBERS.items():
        _check_number(field, header.get(field), low, high)
    if not isinstance(header.get("user"), str | None):
        raise _wrong("user", "must be text")


_NUMBERS: Final[Mapping[str, tuple[float, float]]] = {
    "timeout": (0, 1e9),
    "output_limit": (0, 1 << 62),
    "cols": (1, 0xFFFF),
    "rows": (1, 0xFFFF),
}


def _check_number(field: str, value: Any, low: float, high: float) -> None:
    whole = field != "timeout"
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise _wrong(field, "must be a whole number" if whole else "must be a number")
    if not low <= value <= high:  # false for NaN too
        raise _wrong(field, f"must be from {low:g} to {high:g}")


def _wrong(field: str, rule: str) -> errors.ValidationFailedError:
    return errors.ValidationFailedError(f"{field} {rule}", context={"field": field})


def check_env(env: Any) -> None:
    """Refuse what the kernel cannot pass on.

    Raises:
        ValidationFailedError: a name is empty or has ``=`` or NUL, or a value has NUL.
    """
    if not isinstance(env, dict):
        raise _wrong("env", "must be an object")
    for name, value in env.items():
        if not _is_text(name) or not name or "=" in name:
            raise errors.ValidationFailedError(
                f"{name!r} is no name for an environment variable", context={"field": "env"}
            )
        if value is not None and not _is_text(value):
            raise errors.ValidationFailedError(
                f"the value of {name} is not text without NUL",
                context={"field": "env", "name": name},
            )


def check_command(command: object) -> None:
    """Refuse what is neither runnable text nor argv.

    Raises:
        InvalidCommandError: it is empty, has a NUL byte, or is of another type.
    """
    if isinstance(command, list):
        if not command or not all(isinstance(part, str) for part in command) or not command[0]:
            raise errors.InvalidCommandError("argv is empty, or not a list of texts")
        argv: list[str] = command
    elif isinstance(command, str) and command.strip():
        argv = [command]
    else:
        raise errors.InvalidCommandError("the command is empty, or neither text nor a list")
    if any("\0" in part for part in argv):
        raise errors.InvalidCommandError("a command cannot hold a NUL byte")
    if not all(map(_is_encodable, argv)):
        raise errors.InvalidCommandError("a command holds half a character (a lone surrogate)")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value and _is_encodable(value)


def _is_encodable(text: str) -> bool:
    """Whether *text* is characters, or bytes spelt as the lone surrogates of `surrogateescape`."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def directory(cwd: Any, base: str) -> str:
    """Return the absolute directory of a command whose surroundings are in *base*.

    Raises:
        ValidationFailedError: it has a NUL byte.
    """
    if cwd is not None and not _is_text(cwd):
        raise _wrong("cwd", "must be a path")
    return os.path.join(base, cwd) if cwd else base
