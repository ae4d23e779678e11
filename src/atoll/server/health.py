"""Is the engine alive, does it take work. Asked by programs that have no key.

``/healthz`` answers as long as the process does: who gets no answer may start it again.
``/readyz`` and ``/health`` say whether calls would work now: they fail while the engine stops and
while its store does not answer, and say why; starting it again would not help.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from atoll.engine.engine import Engine
from atoll.server.gate import Desk

log = structlog.get_logger(__name__)

STORE_TIME = 2.0
"""Seconds the store may take to answer the simplest question."""

Endpoint = Callable[[Request], Awaitable[ASGIApp]]


def endpoints(desk: Desk) -> dict[str, Endpoint]:
    """Return path → endpoint."""

    async def alive(_: Request) -> JSONResponse:
        return JSONResponse({"ok": True})

    async def ready(_: Request) -> JSONResponse:
        errors = await problems(desk)
        if errors:
            return JSONResponse({"ok": False, "errors": errors}, 503, {"retry-after": "1"})
        return JSONResponse({"ok": True})

    return {"/healthz": alive, "/readyz": ready, "/health": ready}


async def problems(desk: Desk) -> list[str]:
    """Return why calls would fail now, in words that tell a stranger nothing else."""
    if desk.underway.stopping:
        return ["the engine is stopping"]
    return [] if await _store_answers(desk.engine) else ["the store does not answer"]


async def _store_answers(engine: Engine) -> bool:
    try:
        async with asyncio.timeout(STORE_TIME):
            await engine.store.read("SELECT 1", ())
    except (TimeoutError, sqlite3.Error, RuntimeError) as error:
        log.warning("store does not answer", reason=str(error) or type(error).__name__)
        return False
    return True
