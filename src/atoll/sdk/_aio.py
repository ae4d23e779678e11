"""What the asynchronous SDK does outside of itself; the twin of `atoll.sdk._io`.

The only place of the SDK that imports asyncio: everything in `_async` can be turned into blocking
code by leaving out ``async`` and ``await``.
"""

import asyncio
import inspect
import threading
import weakref
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
)
from contextlib import suppress
from typing import IO, Any, Generic, TypeAlias, TypeVar

from atoll.sdk import _io
from atoll.sdk._io import (
    as_bytes,
    environment,
    is_open,
    jitter,
    made_folders,
    now,
    offer,
    start_engine,
    take_lease,
)

__all__ = [
    "Chunks",
    "Lock",
    "Pump",
    "SharedLock",
    "Stream",
    "as_bytes",
    "background",
    "call",
    "environment",
    "finish",
    "guard",
    "in_thread",
    "is_open",
    "jitter",
    "lasts",
    "made_folders",
    "now",
    "offer",
    "pieces",
    "scope",
    "sleep",
    "start_engine",
    "take_lease",
]

T = TypeVar("T")

Stream: TypeAlias = AsyncGenerator[T, None]
Lock = asyncio.Lock
Chunks: TypeAlias = AsyncIterable[bytes]
sleep = asyncio.sleep

_LOOK_AGAIN = 0.005
"""Seconds between two looks at a lock of another loop."""


class SharedLock:
    """A lock for tasks of several event loops, each in a thread of its own.

    One of asyncio belongs to a loop: a task of another one that waits for it is never woken. Here
    tasks look again and again, so it is for what is done once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        while not self._lock.acquire(blocking=False):  # noqa: ASYNC110 - released by another loop
            await asyncio.sleep(_LOOK_AGAIN)

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


def scope() -> object:
    """Return what connections belong to: the running event loop."""
    return asyncio.get_running_loop()


def lasts(scope: object) -> bool:
    """Whether connections of this scope can still be used."""
    return isinstance(scope, asyncio.AbstractEventLoop) and not scope.is_closed()


async def finish(work: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Do *work* even when the caller is cancelled again, for *seconds* at most.

    It runs on in the background after that. Its errors are not this caller's: there is another
    one already, which made this call necessary.
    """
    task = asyncio.ensure_future(work())
    task.add_done_callback(_collect)
    await asyncio.wait({task}, timeout=seconds)


def _collect(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


def guard(owner: object, source: Stream[Any], *, warn: bool = True) -> None:
    """End *source* when *owner* is collected, or the event loop ends, before the source has ended.

    Left to itself `asyncio.run` ends all generators at once, also those that *source* reads from,
    and prints their complaints; but before that it cancels the tasks.
    """
    task = asyncio.ensure_future(_hold(source))
    weakref.finalize(owner, _end, task, source, type(owner).__name__ if warn else "")


async def _hold(source: Stream[Any]) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        with suppress(RuntimeError):  # another task reads it
            await source.aclose()


def _end(task: asyncio.Task[None], source: Stream[Any], name: str) -> None:
    with suppress(RuntimeError):  # the loop is closed; maybe this is another thread
        task.get_loop().call_soon_threadsafe(task.cancel)
    if name and getattr(source, "ag_frame", None) is not None:
        _io.warn_unclosed(name)


def background(work: Callable[[], Awaitable[None]]) -> None:
    """Do *work* beside the caller."""
    task = asyncio.ensure_future(work())
    task.add_done_callback(_collect)


async def call(callback: Callable[..., object] | None, *values: object) -> None:
    """Call a callback of the user, which may be a coroutine function."""
    if callback is not None:
        outcome = callback(*values)
        if inspect.isawaitable(outcome):
            await outcome


async def pieces(
    source: AsyncIterable[bytes | str] | Iterable[bytes | str] | IO[Any],
) -> AsyncIterator[bytes]:
    """Yield the content of a file object or (async) iterable; text becomes UTF-8."""
    if isinstance(source, AsyncIterable):
        async for chunk in source:
            yield _io.as_bytes(chunk)
        return
    if hasattr(source, "read") and inspect.iscoroutinefunction(source.read):
        while chunk := await source.read(_io.CHUNK):
            yield _io.as_bytes(chunk)
        return
    blocking = _io.pieces(source)
    while (piece := await asyncio.to_thread(next, blocking, None)) is not None:
        yield piece


class Pump(Generic[T]):
    """Takes values from a stream one at a time, for several readers that wait for some of them.

    A reader that is cancelled does not cancel the stream: the next reader goes on waiting for the
    same value.
    """

    def __init__(self, source: Stream[T], take: Callable[[T], None]) -> None:
        self.done = False
        self._source = source
        self._take = take
        self._step: asyncio.Task[None] | None = None

    async def advance(self, enough: Callable[[], bool]) -> None:
        """Take one more value unless *enough* says that it is not needed (any more)."""
        if enough() or self.done:
            return
        if self._step is None:
            self._step = asyncio.create_task(self._next())
        await asyncio.shield(self._step)

    async def _next(self) -> None:
        try:
            self._take(await anext(self._source))
        except StopAsyncIteration:
            self.done = True
        except BaseException:
            self.done = True
            raise
        finally:
            self._step = None

    async def aclose(self) -> None:
        """End the stream."""
        if self._step is not None:
            self._step.cancel()
            await asyncio.wait({self._step})
        self.done = True
        await self._source.aclose()


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a blocking *function* in a thread."""
    return await asyncio.to_thread(function, *arguments)
