"""Our own standard input and output, joined to those of a command in a sandbox."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from atoll.errors import OperationNotFoundError, SandboxError
from atoll.wire.inert import Inert

CHUNK = 1 << 16


async def copy(source: AsyncIterator[bytes], target: int, *, raw: bool = False) -> None:
    """Write everything from *source* to the descriptor *target*.

    A reader of ours that is gone (``| head``) ends the command, as a closed pipe would. What goes
    to a terminal is made inert, unless it is *raw*: a terminal that the user asked for.
    """
    if raw or not os.isatty(target):
        async for chunk in source:
            await write(target, chunk)
        return
    shown = Inert()
    async for chunk in source:
        await write(target, shown.feed(chunk))
    await write(target, shown.end())


async def write(target: int, data: bytes) -> None:
    """Write all of *data* to the descriptor *target*."""
    view = memoryview(data)
    while view:
        view = view[await asyncio.to_thread(os.write, target, view) :]


async def feed(stdin: Any) -> None:
    """Give our standard input to the command and close its own at the end."""
    with suppress(OperationNotFoundError):  # it ended without reading all of it
        async for chunk in _pieces(0):
            await stdin.write(chunk)
        await stdin.close()


async def _pieces(source: int) -> AsyncIterator[bytes]:
    """Yield what comes from a descriptor.

    A thread that waits for a terminal would hold up our own end, so the event loop waits; it
    cannot for regular files, which never make anybody wait.
    """
    while True:
        with suppress(PermissionError):
            await _readable(source)
        if not (chunk := os.read(source, CHUNK)):
            return
        yield chunk


async def _readable(source: int) -> None:
    """Wait until a read would not block; once, so that no earlier event can be taken for it."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(source, _set, ready)
    try:
        await ready
    finally:
        loop.remove_reader(source)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def terminal_size() -> os.terminal_size:
    """Return the size of our terminal, 80 by 24 where there is none or it does not know."""
    with suppress(OSError):
        size = os.get_terminal_size(0)
        if size.columns and size.lines:
            return size
    return os.terminal_size((80, 24))


@contextmanager
def raw_terminal(
    wanted: bool, resize: Callable[[int, int], Coroutine[Any, Any, None]], group: asyncio.TaskGroup
) -> Iterator[None]:
    """Pass keys and size changes of our terminal on as they are, while in the block."""
    if not wanted or not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    async def follow() -> None:
        size = terminal_size()
        with suppress(SandboxError):
            await resize(size.columns, size.lines)

    before = termios.tcgetattr(0)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, lambda: group.create_task(follow()))
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        loop.remove_signal_handler(signal.SIGWINCH)
