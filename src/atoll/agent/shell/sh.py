"""Sessions in an image without bash: what a plain POSIX shell can carry.

Known to work with dash and BusyBox ash. Carried are the current directory, exported variables and
umask. A text whose last status is not 0 under `set -e` ends the shell, which bash knows better;
programs that the text starts do not see the dump's descriptor, but the shell's own copy of it is
lost to a text that uses descriptor 10 itself.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from atoll.agent.shell.quoting import MalformedError, quote_text, read_word
from atoll.agent.shell.states import State, empty_state, is_name

DUMP_FD: Final = 9
"""These shells know descriptors of one digit only."""

BOOT: Final = ". /proc/self/fd/3"

_CLOSE: Final = b"{ exec 3<&-;"
_DUMP: Final = rb"""
{ __atoll=$?
set +eux
} 2>/dev/null
{ command printf '%s\0' "$(command pwd)"
export -p
command printf '\0'
command umask
command printf '\0end\0'
} >&9 2>/dev/null
exit "$__atoll"
}
"""
_EXPORT: Final = re.compile(rb"export ([A-Za-z_]\w*)(=?)", re.ASCII)
_UMASK: Final = re.compile(r"[0-7]{1,4}")
_NEVER: Final = frozenset({"PWD", "SHLVL", "_", "__atoll"})


def script(text: bytes, state: State, borrowed: Collection[str]) -> bytes:
    """Return what `BOOT` reads: the state, the text, the dump."""
    restored = "".join(line + ";" for line in _restore(state, borrowed)).encode("latin-1")
    return _CLOSE + restored + b"command eval " + quote_text(text) + b" 9>&-" + _DUMP


def _restore(state: State, borrowed: Collection[str]) -> Iterator[str]:
    if state["umask"] is not None:
        yield f"umask {state['umask']}"
    for name, (_, value) in state["variables"].items():
        if name not in borrowed and isinstance(value, str):
            yield f"export {name}=" + quote_text(value.encode("latin-1")).decode("latin-1")
    for name in state["unset"]:
        if name not in borrowed:
            yield f"unset {name}"


def state_of(
    data: bytes, before: State, env: Mapping[str, str], borrowed: Collection[str]
) -> State:
    """Return the state after a command.

    Args:
        data: what `script` printed.
        before: the state it started with.
        env: the environment the shell was started with, latin-1 text.
        borrowed: variables given for this command only.

    Raises:
        MalformedError: the dump is not complete.
    """
    fields = data.split(b"\0")
    if len(fields) != 5 or fields[3] != b"end":
        raise MalformedError("the dump is not complete")
    exported = dict(_read_exports(fields[1]))
    umask = fields[2].decode("latin-1").strip()
    if not _UMASK.fullmatch(umask):
        raise MalformedError("no umask")
    state = empty_state(fields[0].decode("latin-1"))
    state["umask"] = umask
    kept = {name: value for name, value in before["variables"].items() if name in borrowed}
    for name, value in exported.items():
        if name not in _NEVER and name not in borrowed and value != env.get(name):
            state["variables"][name] = ("x", value)
    state["variables"].update(kept)
    gone = [name for name in env if name not in exported and name not in {*borrowed, *_NEVER}]
    state["unset"] = [name for name in gone if is_name(name)]
    state["unset"] += [name for name in before["unset"] if name in borrowed]
    return state


def _read_exports(data: bytes) -> Iterator[tuple[str, str]]:
    position = 0
    while match := _EXPORT.match(data, position):
        value, position = read_word(data, match.end()) if match[2] else (b"", match.end())
        yield match[1].decode("latin-1"), value.decode("latin-1")
        position += 1
