"""Blocking calls in threads that a cancelled caller waits for.

`asyncio.to_thread` returns at once when it is cancelled while its thread goes on: whoever then
undoes the work races with it. A mount or an interface made behind the undo would be left over.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_to_end(call: Callable[..., T], *args: object) -> T:
    """Return the result of *call* run in a thread; a cancellation is raised when it has ended."""
    work = asyncio.ensure_future(asyncio.to_thread(call, *args))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError:
                continue
        if not work.cancelled():
            work.exception()  # taken note of: the cancellation is what the caller hears
        raise
