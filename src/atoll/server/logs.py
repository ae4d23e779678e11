"""How the engine logs: structlog to stderr, as JSON lines or for people.

Tracebacks are the plain ones in both forms: the values of local variables are what callers sent,
their keys, environments and standard input among them.
"""

import logging
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog

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
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        if form == "pretty"
        else structlog.processors.JSONRenderer()
    )
    tracebacks = [] if form == "pretty" else [structlog.processors.format_exc_info]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            *tracebacks,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Stderr())),
        cache_logger_on_first_use=True,
    )
