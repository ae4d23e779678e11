"""The state of a session's shell between two commands: how it comes from a dump.

A state holds only what differs from a fresh shell. What that is like is printed by the first shell
of a session and kept: no list of what some version of bash starts with is needed. A state is plain
JSON; bytes are latin-1 text, so that any byte survives.

Not carried, though bash prints them: variables that bash computes (`NEVER`), the trace descriptor
(descriptors are not carried), `noexec` and `onecmd` (they would end the next command before it
begins), history and traps on EXIT, DEBUG, ERR and RETURN.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypedDict

from atoll.agent.shell.dumps import Dump, Settings, Variable
from atoll.agent.shell.quoting import MalformedError

STATE_LIMIT: Final = 8 << 20
"""Bytes of a dump beyond which the earlier state is kept."""

NEVER: Final = frozenset(
    [
        "BASH",
        "BASHOPTS",
        "BASHPID",
        "BASH_ALIASES",
        "BASH_ARGC",
        "BASH_ARGV",
        "BASH_ARGV0",
        "BASH_CMDS",
        "BASH_COMMAND",
        "BASH_EXECUTION_STRING",
        "BASH_LINENO",
        "BASH_MONOSECONDS",
        "BASH_SOURCE",
        "BASH_SUBSHELL",
        "BASH_TRAPSIG",
        "BASH_VERSINFO",
        "BASH_VERSION",
        "BASH_XTRACEFD",
        "COMP_WORDBREAKS",
        "DIRSTACK",
        "EPOCHREALTIME",
        "EPOCHSECONDS",
        "EUID",
        "FUNCNAME",
        "GROUPS",
        "HISTCMD",
        "LINENO",
        "PIPESTATUS",
        "PPID",
        "RANDOM",
        "SECONDS",
        "SHELLOPTS",
        "SHLVL",
        "SRANDOM",
        "UID",
        "_",
    ]
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NO_TRAPS: Final = frozenset({"EXIT", "DEBUG", "ERR", "RETURN"})
_NO_OPTIONS: Final = frozenset({"noexec", "onecmd", "history", "privileged", ""})
_NO_SHOPTS: Final = frozenset({"login_shell", "restricted_shell", "expand_aliases", ""})


Value = str | dict[str, str] | None
"""Of a variable: text, an array, or nothing while it is only declared."""


class Fresh(TypedDict):
    """A fresh shell, without the environment it was given."""

    variables: dict[str, tuple[str, Value]]
    options: list[str]
    shopts: list[str]
    umask: str
    limits: dict[str, tuple[str, str]]


class State(TypedDict):
    """A session's shell state; latin-1 text throughout. Variables are (attributes, value)."""

    fresh: Fresh | None
    cwd: str
    directories: list[str]
    variables: dict[str, tuple[str, Value]]
    unset: list[str]
    arguments: list[str]
    functions: list[str]
    function_attributes: dict[str, str]
    aliases: dict[str, str]
    options: dict[str, bool]
    shopts: dict[str, bool]
    expand_aliases: bool | None
    traps: dict[str, str]
    umask: str | None
    limits: dict[str, tuple[str, str]]


def empty_state(cwd: str) -> State:
    """Return the state of a fresh shell in *cwd*."""
    return {
        "fresh": None,
        "cwd": cwd,
        "directories": [],
        "variables": {},
        "unset": [],
        "arguments": [],
        "functions": [],
        "function_attributes": {},
        "aliases": {},
        "options": {},
        "shopts": {},
        "expand_aliases": None,
        "traps": {},
        "umask": None,
        "limits": {},
    }


def state_of(
    dump: Dump,
    before: State,
    *,
    env: Mapping[str, str],
    borrowed: Collection[str],
    ours: str,
) -> State:
    """Return the state after a command.

    Args:
        dump: what its shell printed.
        before: the state it started with.
        env: the environment its shell was started with, latin-1 text.
        borrowed: variables given for this command only; they stay as they were in *before*.
        ours: prefix of the variables that belong to the launch.

    Raises:
        MalformedError: the dump lacks the fresh shell, which is not known otherwise.
    """
    fresh = before["fresh"] or _fresh_of(dump.fresh, env)
    cwd, after = _text(dump.directories[0]), dump.after
    variables, unset = _changed(_with_env(fresh, env), after.variables, cwd, ours)
    return {
        "fresh": fresh,
        "cwd": cwd,
        "directories": [_text(path) for path in dump.directories[1:]],
        "variables": _given_back(variables, before["variables"], borrowed),
        "unset": [
            *(name for name in unset if name not in borrowed),
            *(name for name in before["unset"] if name in borrowed),
        ],
        "arguments": [_text(argument) for argument in dump.arguments],
        "functions": [_text(function) for function in dump.functions],
        "function_attributes": {
            _text(name): flags for name, flags in dump.function_attributes.items() if flags
        },
        "aliases": _texts(dump.aliases),
        "options": _toggled(fresh["options"], after.options, _NO_OPTIONS),
        "shopts": _toggled(fresh["shopts"], after.shopts, _NO_SHOPTS),
        "expand_aliases": _alias_expansion(after, before),
        "traps": {
            name: _text(action) for name, action in dump.traps.items() if name not in _NO_TRAPS
        },
        "umask": after.umask if after.umask != fresh["umask"] else None,
        "limits": {
            letter: value
            for letter, value in after.limits.items()
            if value != tuple(fresh["limits"].get(letter, ()))
        },
    }


def assign(state: State, changes: Mapping[str, str | None]) -> State:
    """Return *state* after variables were set (exported) or unset from outside, latin-1 text.

    What is no name for a shell variable is left out: it can only be in the environment.
    """
    changes = {name: value for name, value in changes.items() if is_name(name)}
    variables = {name: value for name, value in state["variables"].items() if name not in changes}
    unset = [name for name in state["unset"] if name not in changes]
    for name, value in changes.items():
        if value is None:
            unset.append(name)
        else:
            variables[name] = ("x", value)
    return {**state, "variables": variables, "unset": unset}


def is_name(text: str) -> bool:
    """Whether *text* is a name for a shell variable."""
    return _NAME.fullmatch(text) is not None


def expands_aliases(state: State) -> bool:
    """Whether the next text expands aliases: yes once there are any, unless it was turned off."""
    chosen = state["expand_aliases"]
    return bool(state["aliases"]) if chosen is None else chosen


def _alias_expansion(after: Settings, before: State) -> bool | None:
    now = "expand_aliases" in after.shopts
    return before["expand_aliases"] if now == expands_aliases(before) else now


def _fresh_of(printed: Settings | None, env: Mapping[str, str]) -> Fresh:
    if printed is None:
        raise MalformedError("the fresh shell is missing")
    return {
        "variables": {
            name: _plain(variable)
            for name, variable in printed.variables.items()
            if name not in env and name not in NEVER
        },
        "options": sorted(printed.options),
        "shopts": sorted(printed.shopts),
        "umask": printed.umask,
        "limits": printed.limits,
    }


def _with_env(fresh: Fresh, env: Mapping[str, str]) -> dict[str, tuple[str, Value]]:
    """Return the variables of a fresh shell that was given *env*."""
    given: dict[str, tuple[str, Value]] = {
        name: ("x", value) for name, value in env.items() if is_name(name)
    }
    own = fresh["variables"].items()
    return {name: (attributes, value) for name, (attributes, value) in own} | given


def _changed(
    fresh: Mapping[str, tuple[str, Value]],
    after: Mapping[str, Variable],
    cwd: str,
    ours: str,
) -> tuple[dict[str, tuple[str, Value]], list[str]]:
    """Return the variables that are not as in a fresh shell, and the names of those missing."""
    expected = {**fresh, "PWD": ("x", cwd)}
    now = {name: _plain(variable) for name, variable in after.items() if _is_carried(name, ours)}
    changed = {name: value for name, value in now.items() if value != expected.get(name)}
    for name in _EXPORTABLE:
        if "x" in after.get(name, _UNDECLARED).attributes:
            changed[name] = ("x", None)
    return changed, [name for name in expected if name not in now and _is_carried(name, ours)]


def _given_back(
    variables: dict[str, tuple[str, Value]],
    before: Mapping[str, tuple[str, Value]],
    borrowed: Collection[str],
) -> dict[str, tuple[str, Value]]:
    kept = {name: value for name, value in variables.items() if name not in borrowed}
    return kept | {name: value for name, value in before.items() if name in borrowed}


_EXPORTABLE: Final = ("SHELLOPTS", "BASHOPTS")
"""Read-only to everybody, but a session may export them to the shells it starts."""

_UNDECLARED: Final = Variable("", None)


def _is_carried(name: str, ours: str) -> bool:
    return name not in NEVER and not name.startswith(ours)


def _plain(variable: Variable) -> tuple[str, Value]:
    value = variable.value
    if isinstance(value, dict):
        return variable.attributes, _texts(value)
    return variable.attributes, None if value is None else _text(value)


def _toggled(
    fresh: Iterable[str], after: Iterable[str], without: frozenset[str]
) -> dict[str, bool]:
    on = set(after)
    return {name: name in on for name in sorted(set(fresh) ^ on) if name not in without}


def _texts(items: Mapping[bytes, bytes]) -> dict[str, str]:
    return {_text(key): _text(value) for key, value in items.items()}


def _text(data: bytes) -> str:
    return data.decode("latin-1")
