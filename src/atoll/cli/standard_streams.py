"""Our own standard input and output, joined to those of a command in a sandbox."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from atoll.errors import OperationNotFoundError, SandboxError

CHUNK = 1 << 16


async def copy(source: AsyncIterator[bytes], target: int) -> None:
    """Write everything from *source* to the descriptor *target*.

    A reader of ours that is gone (``| head``) ends the command, as a closed pipe would.
    """
    async for chunk in source:
        view = memoryview(chunk)
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
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(source, ready.set)
    except PermissionError:
        while chunk := os.read(source, CHUNK):
            yield chunk
        return
    except OSError:  # closed
        return
    try:
        while True:
            await ready.wait()
            ready.clear()
            if not (chunk := os.read(source, CHUNK)):
                return
            yield chunk
    finally:
        loop.remove_reader(source)


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
        size = os.get_terminal_size(0)
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
