"""How the engine logs: structlog to stderr, as JSON lines or for people.

Tracebacks are the plain ones in both forms: the values of local variables are what callers sent,
their keys, environments and standard input among them. What sandboxes say is cut, and can do
nothing to the terminal of who reads the log.
"""

import io
import logging
import sys
from contextlib import suppress
from typing import Any, TextIO, cast

import structlog

from atoll.wire import inert

MAX_TEXT = 2_000
"""Characters that are kept of one value: an agent that was taken over may send 64 KiB of them."""

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}


class _Stderr:
    """Standard error, whose disk may be full: a lost line must not fail what it tells of."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            return sys.stderr.write(text)
        return 0

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()


def configure(level: str, form: str) -> None:
    """Set up logging for this process.

    Args:
        level: debug, info, warn or error.
        form: json or pretty.
    """
    # What the server library says has no request id; the gate and the protocol say it with one.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_traceback)
        if form == "pretty"
        else structlog.processors.JSONRenderer()
    )
    tracebacks = [] if form == "pretty" else [structlog.processors.format_exc_info]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            _harmless,
            *tracebacks,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Stderr())),
        cache_logger_on_first_use=True,
    )


def _harmless(_: Any, __: str, entry: structlog.types.EventDict) -> structlog.types.EventDict:
    return {name: _cut(value) if isinstance(value, str) else value for name, value in entry.items()}


def _cut(text: str) -> str:
    more = len(text) - MAX_TEXT
    return inert.line(text[:MAX_TEXT]) + (f"… ({more} more)" if more > 0 else "")


def _traceback(target: TextIO, failure: structlog.typing.ExcInfo) -> None:
    whole = io.StringIO()
    structlog.dev.plain_traceback(whole, failure)
    target.write(inert.lines(whole.getvalue()))
