"""What is told of an exception: name, message, traceback without our frames, line of the code."""

from __future__ import annotations

import os
import sys
import traceback
from types import TracebackType
from typing import Any

from .plain import encodable

OURS = os.path.dirname(os.path.abspath(__file__))
_IPYTHON = sys.modules.get("IPython")
_HIDDEN = (OURS, os.path.dirname(_IPYTHON.__file__ or "")) if _IPYTHON else (OURS,)
MAX_LINES = 400
MAX_LINE = 10_000
MAX_MESSAGE = 100_000


def describe(error: BaseException, cell: str, lines: list[str] | None = None) -> dict[str, Any]:
    """Return the error as it is told to the caller.

    Args:
        cell: file name that the code was compiled with.
        lines: the traceback where somebody else has formatted it already.
    """
    return {
        "type": "error",
        "name": type(error).__name__,
        "message": encodable(_message(error))[:MAX_MESSAGE],
        "traceback": _cut(lines if lines is not None else formatted(error)),
        "lineNumber": line_number(error, cell),
    }


def _message(error: BaseException) -> str:
    try:
        return str(error.msg if isinstance(error, SyntaxError) else error)
    except Exception:
        return "<its text cannot be had>"


def formatted(error: BaseException) -> list[str]:
    """Return the traceback as Python prints it, without the frames of the kernel."""
    try:
        found = traceback.TracebackException.from_exception(error, compact=True)
        frames = [one for one in found.stack if not one.filename.startswith(_HIDDEN)]
        found.stack = traceback.StackSummary.from_list(frames)
        text = "".join(found.format())
    except Exception:  # an exception whose own text cannot be had
        text = f"{type(error).__name__}"
    return text.rstrip("\n").split("\n")


def without_ours(tb: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of the kernel."""
    entries = []
    while tb is not None:
        if not tb.tb_frame.f_code.co_filename.startswith(OURS):
            entries.append(tb)
        tb = tb.tb_next
    rest: TracebackType | None = None
    for entry in reversed(entries):
        rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest


def line_number(error: BaseException, cell: str) -> int | None:
    """Return the line of the code that raised, or that cannot be compiled."""
    if isinstance(error, SyntaxError) and error.filename == cell:
        return error.lineno
    found, tb = None, error.__traceback__
    while tb is not None:
        if tb.tb_frame.f_code.co_filename == cell:
            found = tb.tb_lineno
        tb = tb.tb_next
    return found


def _cut(lines: list[str]) -> list[str]:
    if len(lines) > MAX_LINES:
        half = MAX_LINES // 2
        lines = [*lines[:half], f"… {len(lines) - 2 * half} lines left out …", *lines[-half:]]
    return [encodable(line)[:MAX_LINE] for line in lines]
