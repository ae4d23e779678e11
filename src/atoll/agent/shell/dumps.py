"""What a session's bash prints before and after the user's text, as data.

The dump is a run of fields that end with NUL, which nothing bash prints can hold. It is written by
a process the user controls, so it is input: anything unexpected makes the whole dump void.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from atoll.agent.shell.quoting import MalformedError, read_word

END: Final = b"end"
"""Last field of a complete dump."""

_DECLARE: Final = re.compile(rb"declare -(\S+) ([A-Za-z_]\w*)(=?)", re.ASCII)
_SIMPLE: Final = re.compile(rb'"([^"\\]*)"\n')
_ELEMENT: Final = re.compile(rb" *\[")
_TRAP: Final = re.compile(rb"trap -- ")
_SIGNAL: Final = re.compile(rb"(?:SIG)?([A-Z][A-Z0-9]*(?:[+-]\d+)?|\d+)\n?")
_LIMIT: Final = re.compile(r"\([^()\n]*-(\w)\) +(\d+|unlimited)$", re.MULTILINE)
_BLOCK_LIMITS: Final = frozenset("cf")
_UMASK: Final = re.compile(r"[0-7]{1,4}")
_DOTGLOB: Final = ("shopt -u dotglob", "shopt -s dotglob")
_OPTIONS: Final = re.compile(rb"[a-z0-9_:-]*")
_ATTRIBUTES_LINE: Final = re.compile(rb"\ndeclare -f\w+ \S+\n\Z")
_FUNCTION: Final = re.compile(rb"declare -f(\w*) (\S.*)")


class Variable(NamedTuple):
    """One shell variable. `value` is None while it is only declared; an array maps keys to values."""

    attributes: str
    value: bytes | dict[bytes, bytes] | None


class Settings(NamedTuple):
    """What is compared between the fresh shell and the one after the text."""

    variables: dict[str, Variable]
    options: frozenset[str]
    shopts: frozenset[str]
    umask: str
    limits: dict[str, tuple[str, str]]


class Dump(NamedTuple):
    """A complete dump. `fresh` is None if the fresh shell was known."""

    fresh: Settings | None
    after: Settings
    arguments: list[bytes]
    directories: list[bytes]
    aliases: dict[bytes, bytes]
    functions: list[bytes]
    function_attributes: dict[bytes, str]
    traps: dict[str, bytes]


def read_dump(data: bytes, *, measured: bool) -> Dump:
    """Read a dump; one that was not *measured* begins with the fresh shell.

    Raises:
        MalformedError: it is not complete, or not what bash prints.
    """
    if not data.endswith(b"\0" + END + b"\0"):
        raise MalformedError("the dump is not complete")
    try:
        return _read_fields(iter(data.split(b"\0")), measured=measured)
    except (ValueError, StopIteration) as error:
        raise MalformedError(str(error)) from error


def _read_fields(fields: Iterator[bytes], *, measured: bool) -> Dump:
    fresh = None if measured else _read_fresh(next(fields), next(fields))
    _, options, shopts, _ = next(fields).split(b" ", 3)
    arguments = [next(fields) for _ in range(int(next(fields)))]
    directories = [next(fields) for _ in range(int(next(fields)))]
    variables = read_variables(next(fields))
    attributes = dict(_read_function_list(next(fields)))
    # The dump itself exports these two, to find out whether they are functions.
    attributes |= {name: "" for name in (b"builtin", b"command") if name in attributes}
    functions = split_functions(next(fields), list(attributes))
    traps, process = read_traps(next(fields))
    after = _read_settings(variables, options, shopts, process)
    if list(fields) != [END, b""] or not directories or "PIPESTATUS" not in variables:
        raise MalformedError("fields do not fit")
    aliases = variables.get("BASH_ALIASES", _NO_ALIASES).value
    return Dump(
        fresh,
        after,
        arguments,
        directories,
        aliases if isinstance(aliases, dict) else {},
        functions,
        attributes,
        traps,
    )


_NO_ALIASES: Final = Variable("A", {})


def _read_fresh(declared: bytes, process: bytes) -> Settings:
    variables = read_variables(declared)
    options, shopts = (_text(variables, name) for name in ("SHELLOPTS", "BASHOPTS"))
    return _read_settings(variables, options, shopts, process)


def _read_settings(
    variables: dict[str, Variable], options: bytes, shopts: bytes, process: bytes
) -> Settings:
    dotglob, umask, limits = process.decode("latin-1").split("\n", 2)
    if (
        dotglob not in _DOTGLOB
        or not _UMASK.fullmatch(umask)
        or not all(map(_OPTIONS.fullmatch, (options, shopts)))
    ):
        raise MalformedError("options or umask are malformed")
    names = frozenset(options.decode("latin-1").split(":"))
    read = _read_limits(limits, halved="posix" in names)
    on = frozenset(shopts.decode("latin-1").split(":")) - {"dotglob"}
    if dotglob == _DOTGLOB[1]:  # BASHOPTS is not told when GLOBIGNORE turns it on
        on |= {"dotglob"}
    return Settings(variables, names, on, umask, read)


def _text(variables: dict[str, Variable], name: str) -> bytes:
    value = variables[name].value if name in variables else None
    if not isinstance(value, bytes):
        raise MalformedError(f"{name} is missing")
    return value


def read_variables(data: bytes) -> dict[str, Variable]:
    """Read what `declare -p` prints."""
    found: dict[str, Variable] = {}
    position = 0
    while position < len(data):
        match = _DECLARE.match(data, position)
        if not match:
            raise MalformedError("not a declaration")
        attributes = match[1].decode("latin-1").replace("-", "")
        value: bytes | dict[bytes, bytes] | None = None
        position = match.end()
        if not match[3]:
            position += 1
        elif simple := _SIMPLE.match(data, position):
            value, position = simple[1], simple.end()
        else:
            value, position = _read_value(data, position, attributes)
        found[match[2].decode("latin-1")] = Variable(attributes, value)
    return found


def _read_value(
    data: bytes, position: int, attributes: str
) -> tuple[bytes | dict[bytes, bytes], int]:
    value: bytes | dict[bytes, bytes]
    is_array = "a" in attributes or "A" in attributes
    if is_array and data[position : position + 1] == b"(":
        value, position = _read_array(data, position)
    else:
        value, position = read_word(data, position)
        if is_array:  # before 4.4 the whole array was one quoted word
            value, _ = _read_array(value, 0)
    if data[position : position + 1] != b"\n":
        raise MalformedError("a declaration goes on")
    return value, position + 1


def _read_array(data: bytes, position: int) -> tuple[dict[bytes, bytes], int]:
    if data[position : position + 1] != b"(":
        raise MalformedError("not an array")
    elements: dict[bytes, bytes] = {}
    position += 1
    while match := _ELEMENT.match(data, position):
        key, position = read_word(data, match.end())
        if data[position : position + 2] != b"]=":
            raise MalformedError("not an array element")
        elements[key], position = read_word(data, position + 2)
    end = data.find(b")", position)
    if end < 0 or data[position:end].strip():
        raise MalformedError("an array is not closed")
    return elements, end + 1


def _read_function_list(data: bytes) -> Iterator[tuple[bytes, str]]:
    """Read what `declare -F` prints: names and attributes, in order."""
    for line in data.splitlines():
        match = _FUNCTION.fullmatch(line)
        if not match:
            raise MalformedError("not a function")
        yield match[2], match[1].decode("latin-1")


def split_functions(data: bytes, names: list[bytes]) -> list[bytes]:
    """Cut what `declare -f` prints into pieces of one function each, in the order of *names*.

    Where a function's body (a here-document) looks like the head of the next one, the pieces
    cannot be told apart; they stay one piece, which defines both just as well.
    """
    heads = [name + b" () \n{ " for name in names]
    starts = [0]
    for head in heads[1:]:
        found = data.find(b"\n" + head, starts[-1])
        if found >= 0 and data.find(b"\n" + head, found + 1) < 0:
            starts.append(found + 1)
    pieces = [data[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)]
    return [_ATTRIBUTES_LINE.sub(b"", piece).rstrip(b"\n") for piece in pieces if piece]


def read_traps(data: bytes) -> tuple[dict[str, bytes], bytes]:
    """Read what `trap -p` prints, by signal name without SIG; also return what follows it."""
    traps: dict[str, bytes] = {}
    position = 0
    while lead := _TRAP.match(data, position):
        action, position = read_word(data, lead.end())
        name = _SIGNAL.match(data, position + 1)
        if not name:
            raise MalformedError("not a signal")
        position = name.end()
        if action != b"-":  # how POSIX mode lists a signal that is not trapped
            traps[name[1].decode("latin-1")] = action
    return traps, data[position:]


def _read_limits(text: str, *, halved: bool) -> dict[str, tuple[str, str]]:
    """Read what `ulimit -Sa` and `ulimit -Ha` print, one after the other.

    POSIX mode counts two of them in blocks of half the size.
    """
    soft: dict[str, str] = {}
    limits: dict[str, tuple[str, str]] = {}
    for letter, printed in _LIMIT.findall(text):
        half = halved and letter in _BLOCK_LIMITS and printed != "unlimited"
        value = str(int(printed) // 2) if half else printed
        if letter in soft:
            limits[letter] = soft[letter], value
        soft.setdefault(letter, value)
    return limits
