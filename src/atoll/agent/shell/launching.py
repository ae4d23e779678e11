"""Shell commands: how a text is run, and how a session carries its state to the next one.

Every text runs in a fresh bash. One that belongs to a session restores the session's state,
evaluates the text and prints its state, to a pipe of ours, when the text has ended; see
`scripts` for the code around the text, `shell.dumps` and `shell.states` for what is carried.
No marker is looked for in anything the text prints, and no shell is kept running.

* Whether the *shell* ended (`exit`, `exec`, `set -e`, a signal) or only the *text* did is known
  from the dump: it is complete only if the text came to its end. Two things stop bash that are
  not meant as an end, and are told apart by the text: after `set -n` nothing runs at all and the
  status is 0; a bad array subscript or integer (``${month[08]}``) abandons everything with 1.
  Such a text counts as ended, with its state not saved.
* Output, messages and status are those of `bash -c TEXT`: `$0` is bash, messages begin with
  ``bash: line N:``, LINENO counts the text's own lines. Syntax errors say ``eval:`` where
  `bash -c` says ``-c:``; `$-` has a `c`. The last command is run by fork, not in place of
  the shell, so one that dies by a signal gives 128 + n.
* `set -x` prints ``+`` as in a script, although the text is evaluated, by being passed to
  `bash -c` after all; see `_traceable` for the texts that are not (they print ``+++``).
* Aliases work from the command after the one that defines them on, as if the session were
  interactive; `shopt -u expand_aliases` ends that.
* A DEBUG trap that a text leaves behind runs, unseen, up to twice more. An EXIT trap runs at the
  end of its command, after the state was taken. `readonly POSIXLY_CORRECT` ends the shell.
* Without bash, `sh` is used (dash and busybox are known to work) and a session carries the
  current directory, exported variables and umask only; see `sh`.

Our own descriptors are 973 and 974 while the text runs: the soft limit of open files has to be
1,000 at least, and a text that closes every descriptor in /proc/$$/fd ends its shell.
"""

import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from atoll import errors
from atoll.agent.shell import scripts, sh
from atoll.agent.shell.dumps import read_dump
from atoll.agent.shell.quoting import MalformedError, quote
from atoll.agent.shell.restoring import DEFERRED, check, first_line, restore
from atoll.agent.shell.states import STATE_LIMIT, State, assign, empty_state, state_of

__all__ = ["STATE_LIMIT", "State", "assign", "empty_state"]

ARGUMENT_LIMIT: Final = 100_000
"""Bytes of text passed as an argument; the kernel takes 128 KiB at most."""

_NOEXEC: Final = re.compile(rb"\bset\b[^\n;&|]*\s-\w*n|noexec")
_ENDS: Final = re.compile(rb"exit|exec|\bset\b[^\n;&|]*\s-\w*e|source|\. ")
_XTRACE: Final = re.compile(rb"\bset\b[^\n;&|]*\s-\w*x|xtrace")
_UNTRACEABLE: Final = re.compile(rb"\bset\b[^\n;&|]*\s-\w*v|verbose|alias|<<")


class Launch(NamedTuple):
    """What to execute, and what is needed to understand its end.

    Attributes:
        program: path of what is executed; argv[0] is only its name.
        env: the whole environment.
        cwd: directory to start in.
        files: contents of files to be readable at these descriptors.
        dump_fd: where the write end of a pipe goes; it is to be read all the time and kept up to
            `STATE_LIMIT` and one byte. None: there is no state.
        sink_fd: where /dev/null goes, open for writing. None: not needed.
    """

    program: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    files: dict[int, bytes]
    dump_fd: int | None
    sink_fd: int | None
    text: bytes
    before: State
    borrowed: frozenset[str]
    moved: bool
    name: str


class Outcome(NamedTuple):
    """What became of the session: `state` is what its next command starts with."""

    session_ended: bool
    state_saved: bool
    state: State | None


def prepare_alone(
    command: str, *, program: str, env: Mapping[str, str], cwd: str, name: str | None = None
) -> Launch:
    """Return how to run a text that belongs to no session.

    Raises:
        InvalidCommandError: the text has a NUL byte.
    """
    text = _encode(command)
    name = name or _unknowable_name()
    files: dict[int, bytes] = {}
    argument = command
    if len(text) > ARGUMENT_LIMIT and _is_bash(program):
        argument = scripts.boot(name.encode()).decode()
        files[scripts.SCRIPT_FD] = scripts.alone_script(text, name.encode())
    elif len(text) > ARGUMENT_LIMIT:
        argument = sh.BOOT
        files[scripts.SCRIPT_FD] = b"exec 3<&-;" + text
    return Launch(
        program,
        [os.path.basename(program), "-c", argument],
        dict(env),
        cwd,
        files,
        None,
        None,
        text,
        empty_state(cwd),
        frozenset(),
        False,
        name,
    )


def prepare(
    command: str,
    state: State | None,
    *,
    program: str,
    env: Mapping[str, str],
    cwd: str,
    changes: Mapping[str, str | None] | None = None,
    elsewhere: str | None = None,
    name: str | None = None,
) -> Launch:
    """Return how to run the next text of a session.

    Args:
        command: the text.
        state: the session's state; None: a fresh shell.
        program: path of bash, or of a POSIX shell.
        env: the session's environment, as a fresh shell of it would get it.
        cwd: directory of a fresh shell.
        changes: environment of this command only; None unsets.
        elsewhere: absolute directory for this command; it is kept only if the text leaves it.
        name: prefix of our variables; chosen at random by default.

    Raises:
        InvalidCommandError: the text has a NUL byte.
        InternalError: the state is not one that `conclude` returned.
    """
    text = _encode(command)
    before = _checked(state) if state else empty_state(_latin(cwd))
    directory = elsewhere or _unicode(before["cwd"])
    full = {**env, **(changes or {}), "PWD": directory}
    inherited = {key: value for key, value in full.items() if value is not None}
    launch = Launch(
        program,
        [os.path.basename(program), "-c", sh.BOOT],
        inherited,
        directory,
        {},
        sh.DUMP_FD,
        None,
        text,
        before,
        frozenset(changes or ()),
        elsewhere is not None,
        name or _unknowable_name(),
    )
    if not _is_bash(program):
        files = {scripts.SCRIPT_FD: sh.script(text, before, launch.borrowed)}
        return launch._replace(files=files)
    return _with_bash(launch, fresh=state is None)


def _with_bash(launch: Launch, *, fresh: bool) -> Launch:
    text, name = launch.text, launch.name.encode()
    deferred: dict[str, str] = {key: launch.env[key] for key in DEFERRED if key in launch.env}
    env = {key: value for key, value in launch.env.items() if key not in DEFERRED}
    state = _with_deferred(launch.before, deferred)
    restored = scripts.opening(name, measured=state["fresh"] is not None)
    restored += restore(state, _latin_items(env), launch.borrowed)
    if fresh and (startup := deferred.get("BASH_ENV")):
        restored += _sourced(_utf8(startup))
    prefix = first_line(state)
    script = scripts.eval_script(text, restored, prefix, name)
    files = {scripts.SCRIPT_FD: script}
    argument = scripts.boot(name)
    if _traceable(text, state):
        if prefix:
            restored += prefix + b" 2>&974"
        first, argument = scripts.traced_scripts(text, restored, _utf8(launch.program), name)
        files[scripts.TRACED_FD] = first
        env["BASH_ENV"] = f"/proc/self/fd/{scripts.TRACED_FD}"
    return launch._replace(
        argv=["bash", "-c", _unicode_bytes(argument)],
        env=env,
        files=files,
        dump_fd=scripts.DUMP_FD,
        sink_fd=scripts.SINK_FD,
    )


def conclude(launch: Launch, dump: bytes, exit_code: int | None) -> Outcome:
    """Return what a command left of its session.

    Args:
        launch: how it was started.
        dump: what was read from the dump's pipe.
        exit_code: how the shell exited; None: a signal ended it.
    """
    after = _state_after(launch, dump)
    if after:
        return Outcome(False, True, after)
    complete = dump.endswith(b"\0end\0") or len(dump) > STATE_LIMIT
    if complete or _is_abandoned(launch, exit_code):
        return Outcome(False, False, launch.before)
    return Outcome(True, False, None)


def _is_abandoned(launch: Launch, exit_code: int | None) -> bool:
    """Whether a shell that left no dump stopped although nothing asked it to end."""
    if exit_code == 1 and not launch.before["options"].get("errexit"):
        code = [launch.text, *(text.encode("latin-1") for text in launch.before["functions"])]
        return not any(_ENDS.search(part) for part in code)
    return exit_code == 0 and bool(_NOEXEC.search(launch.text))


def _state_after(launch: Launch, dump: bytes) -> State | None:
    if len(dump) > STATE_LIMIT:
        return None
    before, env, borrowed = launch.before, _latin_items(launch.env), launch.borrowed
    try:
        if _is_bash(launch.program):
            printed = read_dump(dump, measured=before["fresh"] is not None)
            state = state_of(printed, before, env=env, borrowed=borrowed, ours=launch.name)
        else:
            state = sh.state_of(dump, before, env, borrowed)
    except MalformedError:
        return None
    if launch.moved and state["cwd"] == _latin(launch.cwd):
        state["cwd"] = launch.before["cwd"]
    return state


def _checked(state: State) -> State:
    try:
        return check(state)
    except (TypeError, ValueError, AttributeError) as error:
        raise errors.InternalError(f"the session's stored state is damaged: {error}") from error


def _traceable(text: bytes, state: State) -> bool:
    """Whether the text may trace and can be passed to `bash -c` with the dump after it.

    It cannot be if lines are echoed as they are read, if aliases could change the dump, or if a
    here-document could swallow it. Whether it is whole is found out by bash.
    """
    options = state["options"]
    return (
        bool(options.get("xtrace") or _XTRACE.search(text))
        and not options.get("verbose")
        and not _UNTRACEABLE.search(text)
        and not state["aliases"]
        and not any(function.startswith("builtin () ") for function in state["functions"])
        and len(text) <= ARGUMENT_LIMIT
    )


def _with_deferred(state: State, deferred: Mapping[str, str]) -> State:
    added = {
        name: ("x", _latin(value))
        for name, value in deferred.items()
        if name in {"BASH_ENV", "POSIXLY_CORRECT"}
        and name not in state["variables"]
        and name not in state["unset"]
    }
    return {**state, "variables": {**added, **state["variables"]}}


def _sourced(path: bytes) -> bytes:
    """Return what a shell does at its start with BASH_ENV, but for expansions in the name."""
    path = quote(path if b"/" in path else b"./" + path)
    return b"[[ -e " + path + b" ]]&&builtin . " + path + b";[[ 1 ]];"


def _is_bash(program: str) -> bool:
    return os.path.basename(program) == "bash"


def _unknowable_name() -> str:
    return f"_{os.urandom(4).hex()}"


def _encode(command: str) -> bytes:
    if "\0" in command:
        raise errors.InvalidCommandError("a command cannot hold a NUL byte")
    return _utf8(command)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _unicode_bytes(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _latin(text: str) -> str:
    return _utf8(text).decode("latin-1")


def _unicode(latin: str) -> str:
    return _unicode_bytes(latin.encode("latin-1"))


def _latin_items(items: Mapping[str, str]) -> dict[str, str]:
    return {_latin(name): _latin(value) for name, value in items.items()}
