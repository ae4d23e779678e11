"""Keeps the engine of ``atoll dev`` there: says when it is gone, and gets it back.

A private engine that was killed is started again by the next call of its environment; the worker
process, which only knows the path of its socket, cannot do that. So this process asks, cheaply and
often enough that a request waits instead of failing.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from atoll.errors import SandboxError

EVERY_SECONDS = 2.0
"""Pause between two questions; a request of the worker waits ten times that for its engine."""


async def keep(engine: Any, say: Callable[[str], None], *, every: float = EVERY_SECONDS) -> None:
    """Ask the *engine* now and then until cancelled, and say what changed.

    Args:
        engine: an open environment of the SDK.
        say: called with lines for the user.
        every: seconds between two questions.
    """
    before, problem = _instance(await engine.url()), ""
    while True:
        await asyncio.sleep(every)
        try:
            await engine.version()
            now = _instance(await engine.url())
        except (SandboxError, OSError) as error:
            if str(error) != problem:
                problem = str(error)
                say(f"error: the engine does not answer: {problem}")
            continue
        if now != before:
            say("the engine had ended; it runs again, with the files of all sandboxes")
        elif problem:
            say("the engine answers again")
        before, problem = now, ""


def _instance(url: str) -> tuple[int, int] | None:
    """Return what tells one run of an engine from the next: its socket, made anew by each."""
    try:
        found = Path(url.removeprefix("unix://")).stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns
