"""From a request and its surroundings to what is executed: environment, directory, argv.

Everything here is checked and computed before the stub is told anything, so that a wrong request
is a typed error and never a half-started command.
"""

import errno
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from atoll import errors
from atoll.agent import statefile
from atoll.agent.checks import directory
from atoll.agent.descriptors import spill
from atoll.agent.environment import DEFAULT_PATH, base_env, layered
from atoll.agent.shell.launching import Launch, Outcome, conclude, prepare, prepare_alone
from atoll.agent.users import User, refused

SHELLS: Final = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh", "/usr/bin/sh")

_SHOWN: Final = 200
"""Characters of a program's name in an error."""


class Context(NamedTuple):
    """What surrounds a request: environment, directory and user, and the session's shell."""

    env: dict[str, str]
    cwd: str  # of a fresh shell
    here: str  # where the session's shell is now
    user: str
    session: bool
    pending: dict[str, str | None]  # variables that the shell state does not know yet
    state: int | None  # memory file with the shell state
    room: int = 0  # bytes that the next one may take

    @classmethod
    def of(cls, body: Mapping[str, Any], fds: Sequence[int]) -> "Context":
        """Read the context from a message of the router."""
        state = fds[0] if fds else None
        names = ("env", "cwd", "here", "user", "session", "pending")
        return cls(**{name: body[name] for name in names}, state=state, room=body.get("room", 0))


class Plan(NamedTuple):
    """What the stub executes.

    Attributes:
        program: a path, or a name that is looked for in the command's PATH.
        files: descriptor number in the command → descriptor here.
        shell: how the session goes on after it; None: it has no shell state.
        dump: pipe that the shell state comes from.
    """

    program: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    files: dict[int, int]
    shell: Launch | None = None
    dump: int | None = None

    def message(self, user: User, *, tty: bool) -> dict[str, Any]:
        """Return the plan for the stub."""
        return {
            "program": self.program,
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
        """Close what the stub has its own of; the dump stays open."""
        for fd in self.files.values():
            os.close(fd)

    def outcome(self, dump: bytes, exit_code: int | None) -> Outcome:
        """Return what the command left of its session; *exit_code* None: a signal ended it."""
        if self.shell is None or self.dump is None:
            return Outcome(session_ended=False, state_saved=True, state=None)
        return conclude(self.shell, dump, exit_code)


def plan(header: Mapping[str, Any], context: Context, user: User, sink: int) -> Plan:
    """Return what to execute for a checked request.

    Args:
        sink: /dev/null, open for writing.

    Raises:
        CommandExecutionError: the image has no shell.
        InternalError: the session's state came back damaged.
    """
    base = layered(base_env(user, pty=bool(header.get("pty"))), context.env)
    state = None if context.state is None else statefile.read(context.state)
    if state and not context.session:
        base = layered(base, statefile.exported(state), context.pending)
    changes, command = header.get("env") or {}, header["command"]
    if isinstance(command, list):
        cwd = directory(header.get("cwd"), context.here)
        return Plan(command[0], command, layered(base, changes), cwd, {})
    program = find_shell()
    if not context.session:
        cwd = directory(header.get("cwd"), context.cwd)
        env = layered(base, changes)
        return _with_shell(prepare_alone(command, program=program, env=env, cwd=cwd), user, sink)
    return _with_shell(
        prepare(
            command,
            statefile.with_changes(state, context.pending),
            program=program,
            env=base,
            cwd=context.cwd,
            changes=changes,
            elsewhere=directory(header["cwd"], context.here) if header.get("cwd") else None,
        ),
        user,
        sink,
    )


def _with_shell(launch: Launch, user: User, sink: int) -> Plan:
    files = {number: _owned(spill(data), user) for number, data in launch.files.items()}
    dump = None
    if launch.dump_fd is not None:
        dump, files[launch.dump_fd] = os.pipe2(os.O_CLOEXEC)
    if launch.sink_fd is not None:
        files[launch.sink_fd] = os.dup(sink)
    return Plan(launch.program, launch.argv, launch.env, launch.cwd, files, launch, dump)


def _owned(file: int, user: User) -> int:
    """Let the command's shell open its script by a name, and nobody else."""
    with suppress(OSError):  # ids that are not there: what the stub says of them counts
        os.fchown(file, user.uid, user.gid)
    return file


def find_shell() -> str:
    """Return the path of the image's bash, or else of its sh.

    Raises:
        CommandExecutionError: it has neither.
    """
    for path in SHELLS:
        if os.access(path, os.X_OK):
            return path
    raise errors.CommandExecutionError(
        "the image has no shell",
        context={"looked_for": list(SHELLS)},
        suggestion="give the command as a list: it then runs without a shell",
    )


def failure(report: Mapping[str, Any], argv: Sequence[str]) -> errors.SandboxError:
    """Return the typed error for what the stub could not do."""
    stage, number, path = report["failed"], int(report["errno"]), str(report["path"])
    reason = os.strerror(number)
    if stage == "cwd":
        return errors.from_os_error(OSError(number, reason), path)
    if stage == "exec":
        return _exec_failure(number, path, argv)
    if stage == "user":
        if number in {errno.EPERM, errno.EINVAL}:
            return refused()
        return errors.CommandExecutionError(f"the command's user could not be set: {reason}")
    if stage == "limits":
        return errors.CommandExecutionError(f"the command's limits could not be set: {reason}")
    return errors.CommandExecutionError(f"the command could not be started: {path}")


def _exec_failure(number: int, path: str, argv: Sequence[str]) -> errors.SandboxError:
    name = argv[0] if len(argv[0]) <= _SHOWN else argv[0][: _SHOWN - 1] + "…"
    context = {"command": name, "errno": number}
    kind = errors.from_os_error(OSError(number, os.strerror(number)), path)
    if isinstance(kind, errors.FileNotFoundError | errors.NotDirectoryError):
        return errors.CommandNotFoundError(
            f"no such command: {name}",
            context=context,
            suggestion="check the name and PATH, or that the script's interpreter exists",
        )
    if isinstance(kind, errors.PermissionDeniedError):
        return errors.CommandPermissionDeniedError(
            f"not executable: {name}", context=context, suggestion="chmod +x it"
        )
    if number in {errno.E2BIG, errno.ENAMETOOLONG}:
        return errors.InvalidCommandError(
            f"{name} could not be executed: {os.strerror(number)}",
            context=context,
            suggestion="arguments and variables have limits (128 KiB each): use stdin, or a file",
        )
    return errors.CommandExecutionError(
        f"{name} could not be executed: {os.strerror(number)}", context=context
    )
