"""Shell state as the bytes that supervisors leave for each other and the engine keeps over a sleep.

JSON, compressed once it is large: states are text that repeats itself.
"""

import json
import os
import zlib
from collections.abc import Mapping
from typing import Final

from atoll import errors
from atoll.agent.descriptors import read_all
from atoll.agent.shell.launching import State, assign

COMPRESS_FROM: Final = 64 << 10
MAX_STATE: Final = 64 << 20
"""Bytes of JSON that a stored state may become; one of `STATE_LIMIT` stays well below."""

_COMPRESSED: Final = 0x78


def encode(state: State) -> bytes:
    """Return what a memory file with *state* holds."""
    data = json.dumps(state, separators=(",", ":")).encode()
    return zlib.compress(data, 1) if len(data) >= COMPRESS_FROM else data


def read(fd: int) -> State:
    """Return the state in a memory file and close it.

    Raises:
        InternalError: it holds something else (an engine gave back what it never got).
    """
    try:
        return parse(read_all(fd))
    finally:
        os.close(fd)


def parse(data: bytes) -> State:
    """Return the state in *data*; raise as `read`."""
    try:
        if data[:1] == bytes([_COMPRESSED]):
            data = zlib.decompressobj().decompress(data, MAX_STATE)
        state: State = json.loads(data)
    except (ValueError, RecursionError, zlib.error) as error:
        raise errors.InternalError(f"the session's stored state is damaged: {error}") from error
    if not isinstance(state, dict) or State.__required_keys__ - state.keys():
        raise errors.InternalError("the session's stored state is not complete")
    return state


def with_changes(state: State | None, changes: Mapping[str, str | None]) -> State | None:
    """Return *state* after variables were set from outside; a fresh shell gets them anyway."""
    if state is None or not changes:
        return state
    return assign(
        state,
        {to_latin(k): None if v is None else to_latin(v) for k, v in changes.items()},
    )


def exported(state: State) -> dict[str, str | None]:
    """Return the variables that programs started by the shell would see; None: unset in it."""
    found: dict[str, str | None] = {from_latin(name): None for name in state["unset"]}
    for name, (attributes, value) in state["variables"].items():
        if "x" in attributes and isinstance(value, str):
            found[from_latin(name)] = from_latin(value)
    return found


def to_latin(text: str) -> str:
    """Return *text* as states spell it: one character per byte."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def from_latin(text: str) -> str:
    """Return a state's text as requests spell it."""
    return text.encode("latin-1").decode("utf-8", "surrogateescape")
