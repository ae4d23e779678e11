"""How a verb reaches an engine: the one asked for, else the private one of this host.

`atoll.local()` attaches to whatever engine serves the state directory, also to one that was
started by ``atoll serve``; only when there is none it starts one for as long as the verb takes.
"""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def environment(url: str | None) -> Any:
    """Return the engine as an asynchronous context manager."""
    import atoll

    return atoll.connect(url) if url else atoll.local()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a verb. SIGTERM and SIGINT cancel it, so that it leaves nothing behind.

    Raises:
        SystemExit: it was interrupted.
    """
    received: list[int] = []

    async def main() -> T:
        this = asyncio.current_task()

        def interrupt(number: int) -> None:
            received.append(number)
            if this:
                this.cancel()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, interrupt, number)
        return await work

    try:
        return asyncio.run(main())
    except (asyncio.CancelledError, BrokenPipeError, BaseExceptionGroup) as error:
        failure = first(error)
    if isinstance(failure, asyncio.CancelledError):
        raise SystemExit(128 + (received or [signal.SIGINT])[0])
    if isinstance(failure, BrokenPipeError):
        raise SystemExit(128 + signal.SIGPIPE)
    raise failure


def first(error: BaseException) -> BaseException:
    """Return the first error of a group of tasks, or *error* itself."""
    return first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
