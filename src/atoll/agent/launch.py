"""From a request and its surroundings to what is executed: environment, directory, argv.

Everything here is checked and computed before the stub is told anything, so that a wrong request
is a typed error and never a half-started command.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from atoll import errors
from atoll.agent.descriptors import spill
from atoll.agent.users import User

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Context(NamedTuple):
    """What surrounds a request: environment, directory and user, and the session's shell."""

    env: dict[str, str]
    cwd: str
    user: str
    session: bool
    pending: dict[str, str | None]  # variables that the shell state does not know yet
    state: int | None  # memory file with the shell state

    @classmethod
    def of(cls, body: Mapping[str, Any], fds: Sequence[int]) -> "Context":
        """Read the context from a message of the router."""
        state = fds[0] if fds else None
        return cls(body["env"], body["cwd"], body["user"], body["session"], body["pending"], state)


class Plan(NamedTuple):
    """What the stub executes. The descriptors `fds` get the numbers `targets` in the command."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    fds: list[int]
    targets: list[int]

    def message(self, user: User, *, tty: bool) -> dict[str, Any]:
        """Return the plan for the stub."""
        return {
            "argv": self.argv,
            "env": self.env,
            "cwd": self.cwd,
            "path": self.env.get("PATH", DEFAULT_PATH),
            "uid": user.uid,
            "gid": user.gid,
            "groups": user.groups,
            "tty": tty,
        }

    def close(self) -> None:
        """Close this side's descriptors, after the stub has its own."""
        for fd in self.fds:
            os.close(fd)


def check(header: Mapping[str, Any]) -> None:
    """Refuse a request that could never run.

    Raises:
        InvalidCommandError: see `check_command`.
        ValidationFailedError: another field is wrong.
    """
    check_command(header.get("command"))
    check_env(header.get("env") or {})
    directory(header.get("cwd"), "/")
    for field, kinds in _TYPES.items():
        value = header.get(field)
        if value is not None and (not isinstance(value, kinds) or value is True):
            raise errors.ValidationFailedError(
                f"{field} has the wrong type", context={"field": field}
            )


_TYPES: Final = {
    "timeout": (int, float),
    "output_limit": (int,),
    "cols": (int,),
    "rows": (int,),
    "user": (str,),
}


def plan(header: Mapping[str, Any], context: Context, user: User) -> Plan:
    """Return what to execute for a checked request."""
    env = layered(base_env(user, pty=bool(header.get("pty"))), context.env, header.get("env") or {})
    cwd = directory(header.get("cwd"), context.cwd)
    command = header["command"]
    if isinstance(command, list):
        return Plan(command, env, cwd, [], [])
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    script = spill(command.encode("utf-8", "surrogateescape"))
    return Plan([shell, "/proc/self/fd/9"], env, cwd, [script], [9])


def layered(*layers: Mapping[str, str | None]) -> dict[str, str]:
    """Return the environment that results from *layers*, later ones first; None unsets."""
    merged: dict[str, str] = {}
    for layer in layers:
        for name, value in layer.items():
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = value
    return merged


def base_env(user: User, *, pty: bool) -> dict[str, str]:
    """Return what a command has in its environment even if nobody set it."""
    env = {"PATH": DEFAULT_PATH, "HOME": user.home, "USER": user.name, "LOGNAME": user.name}
    return env | {"TERM": "xterm-256color"} if pty else env


def check_env(env: Mapping[str, str | None]) -> None:
    """Refuse what the kernel cannot pass on.

    Raises:
        ValidationFailedError: a name is empty or has ``=`` or NUL, or a value has NUL.
    """
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise errors.ValidationFailedError(
                f"{name!r} is no name for an environment variable", context={"field": "env"}
            )
        if value is not None and (not isinstance(value, str) or "\0" in value):
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


def directory(cwd: str | None, base: str) -> str:
    """Return the absolute directory of a command whose surroundings are in *base*.

    Raises:
        ValidationFailedError: it has a NUL byte.
    """
    if cwd is not None and (not isinstance(cwd, str) or "\0" in cwd):
        raise errors.ValidationFailedError("cwd is not a path", context={"field": "cwd"})
    return os.path.join(base, cwd) if cwd else base


def failure(report: Mapping[str, Any], argv: Sequence[str]) -> errors.SandboxError:
    """Return the typed error for what the stub could not do."""
    stage, number, path = report["failed"], int(report["errno"]), str(report["path"])
    reason = os.strerror(number)
    if stage == "cwd":
        return errors.from_os_error(OSError(number, reason), path)
    if stage == "exec":
        return _exec_failure(number, path, argv)
    if stage == "user":
        return errors.CommandExecutionError(f"the command's user could not be set: {reason}")
    return errors.CommandExecutionError(f"the command could not be started: {path}")


def _exec_failure(number: int, path: str, argv: Sequence[str]) -> errors.SandboxError:
    context = {"command": argv[0], "errno": number}
    kind = errors.from_os_error(OSError(number, os.strerror(number)), path)
    if isinstance(kind, errors.FileNotFoundError | errors.NotDirectoryError):
        return errors.CommandNotFoundError(
            f"no such command: {argv[0]}",
            context=context,
            suggestion="check the name and PATH, or that the script's interpreter exists",
        )
    if isinstance(kind, errors.PermissionDeniedError):
        return errors.CommandPermissionDeniedError(
            f"not executable: {argv[0]}", context=context, suggestion="chmod +x it"
        )
    return errors.CommandExecutionError(
        f"{argv[0]} could not be executed: {os.strerror(number)}", context=context
    )
