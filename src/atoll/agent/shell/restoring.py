"""From a state to the commands that bring it back, all on one line.

Values are quoted anew, here, and never evaluated: a variable gets its value before its attributes
(`declare -i x='a[$(id)]'` would run id). Assignments go by way of `declare`, whose failure (a name
that is read-only in another version of bash) costs that variable, not the command. After the
functions every builtin is called through `builtin`, since a function may have its name.

A state comes back from the engine's store: what is not quoted here is looked at by `check`.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from atoll.agent.shell.quoting import MalformedError, quote
from atoll.agent.shell.states import State, Value, expands_aliases

DEFERRED: Final = ("BASH_ENV", "BASHOPTS", "POSIXLY_CORRECT", "SHELLOPTS")
"""Environment that acts on a shell as it starts: given to it only after it has started."""

_EXPORTED: Final = frozenset({"OLDPWD", "PWD"})
"""Variables that a fresh bash exports although they are not in its environment."""

_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_FLAGS: Final = re.compile(r"[A-Za-z]*")
_OPTION: Final = re.compile(r"[a-z0-9_-]+")
_SIGNAL: Final = re.compile(r"[A-Z0-9]+([+-][0-9]+)?")
_NUMBER: Final = re.compile(r"[0-9]+|unlimited")
_LATE: Final = frozenset({"POSIXLY_CORRECT"})
_ATTRIBUTES: Final = frozenset("aAilnrtuxc")


def check(state: State) -> State:
    """Return *state* if nothing in it that is not quoted could be read as anything else.

    Raises:
        MalformedError: a name, number or flag is not one.
    """
    limits = [value for pair in state["limits"].values() for value in pair]
    words = {
        _NAME: [*state["variables"], *state["unset"]],
        _FLAGS: [
            *(attributes for attributes, _ in state["variables"].values()),
            *state["function_attributes"].values(),
            *state["limits"],
        ],
        _OPTION: [*state["options"], *state["shopts"]],
        _SIGNAL: list(state["traps"]),
        _NUMBER: [state["umask"] or "0", *limits, *_subscripts(state)],
    }
    for pattern, found in words.items():
        for word in found:
            if not pattern.fullmatch(word):
                raise MalformedError(f"the state holds {word!r} where it cannot be")
    return state


def _subscripts(state: State) -> Iterator[str]:
    for attributes, value in state["variables"].values():
        if isinstance(value, dict) and "A" not in attributes:
            yield from value


def restore(state: State, env: Mapping[str, str], borrowed: Collection[str]) -> bytes:
    """Return the commands that bring *state* back, on one line that ends with a separator.

    Args:
        state: as made by `state_of`.
        env: the environment the shell is started with, latin-1 text.
        borrowed: variables that are given for this command only and left alone.
    """
    lines = [
        *_variables(state, env, borrowed),
        *_surroundings(state),
        *_functions(state),
        *_options(state),
        "[[ 1 ]]",
    ]
    return b"{ " + ";".join(lines).encode("latin-1") + b";} >&974 2>&974;"


def first_line(state: State) -> bytes:
    """Return what only the text's own shell level can bring back, or nothing.

    Aliases are expanded from the next line on, tracing starts with the next command, and a
    function named `builtin` must not be there before `builtin` has run the text.
    """
    lines = [
        f"builtin eval {_quote(function)}"
        for function in state["functions"]
        if function.startswith("builtin () ")
    ]
    if state["options"].get("xtrace"):
        lines.append("set -x")
    return ";".join(lines).encode("latin-1")


def _quote(value: str) -> str:
    return quote(value.encode("latin-1")).decode("latin-1")


def _variables(state: State, env: Mapping[str, str], borrowed: Collection[str]) -> Iterator[str]:
    names = [name for name in state["unset"] if name not in borrowed]
    if names:
        yield "unset -v " + " ".join(names)
    variables = [
        (name, attributes, value)
        for name, (attributes, value) in state["variables"].items()
        if name not in borrowed and name not in _LATE
    ]
    for name, attributes, value in sorted(variables, key=lambda item: "n" in item[1]):
        if (isinstance(value, dict) and name in env) or name == "OPTIND":
            yield f"unset -v {name}"  # as the fresh shell has it, it is no array, or evaluates
        yield from _declare(name, attributes, value)
        if "x" not in attributes and (name in env or name in _EXPORTED):
            yield f"declare +x {name}"


def _declare(name: str, attributes: str, value: Value) -> Iterator[str]:
    flags = "".join(flag for flag in attributes if flag in _ATTRIBUTES)
    kind = "".join(flag for flag in flags if flag in "aAn")
    if isinstance(value, dict):
        key = _quote if "A" in kind else str
        elements = " ".join(f"[{key(at)}]={_quote(item)}" for at, item in value.items())
        yield f"declare -{kind} {name}=({elements})"
    elif value is not None:
        yield f"declare {'-n ' if kind else ''}{name}={_quote(value)}"
    rest = flags if value is None else "".join(flag for flag in flags if flag not in kind)
    if rest or value is None:
        yield f"declare {'-' + rest if rest else '--'} {name}"


def _surroundings(state: State) -> Iterator[str]:
    for path in reversed(state["directories"]):
        yield f"pushd -n -- {_quote(path)}"
    for name, text in state["aliases"].items():
        yield f"alias -- {_quote(name + '=' + text)}"
    for signal, action in state["traps"].items():
        yield f"trap -- {_quote(action)} {signal}"
    if state["umask"] is not None:
        yield f"umask {state['umask']}"
    for letter, (soft, hard) in state["limits"].items():
        # Either may have to go first, depending on which way they moved.
        yield f"ulimit -S -{letter} {soft};ulimit -H -{letter} {hard};ulimit -S -{letter} {soft}"
    if state["arguments"]:
        yield "set -- " + " ".join(map(_quote, state["arguments"]))


def _functions(state: State) -> Iterator[str]:
    functions = [text for text in state["functions"] if not text.startswith("builtin () ")]
    if not functions:
        return
    yield "shopt -s extglob"
    for function in functions:
        yield f"builtin eval {_quote(function)}"
    for name, flags in state["function_attributes"].items():
        if name != "builtin":
            yield f"builtin declare -f{flags} -- {_quote(name)}"
    if "extglob" not in state["shopts"]:
        yield "builtin shopt -u extglob"


def _options(state: State) -> Iterator[str]:
    shopts = dict(state["shopts"])
    if "GLOBIGNORE" in state["variables"]:  # assigning it turned dotglob on
        shopts.setdefault("dotglob", False)
    if expands_aliases(state):
        shopts["expand_aliases"] = True
    for name, on in shopts.items():
        yield f"builtin shopt -{'s' if on else 'u'} {name}"
    options = {name: on for name, on in state["options"].items() if name != "xtrace"}
    if "IGNOREEOF" in state["variables"]:
        options.setdefault("ignoreeof", False)
    for name, on in sorted(options.items(), key=lambda item: item[0] == "posix"):
        yield f"builtin set {'-' if on else '+'}o {name}"
    for name in _LATE & state["variables"].keys():
        attributes, value = state["variables"][name]
        yield f"builtin declare -{attributes or '-'} {name}={_quote(str(value or ''))}"
