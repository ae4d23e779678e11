"""Finds what answers requests in a user's entry file.

Three forms are known: a class ``Default`` derived from `WorkerEntrypoint` with ``fetch``, a
function ``on_fetch(request, env, ctx)``, or an ASGI application named ``app``.
"""

import asyncio
import importlib.util
import inspect
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from atoll.errors import InvalidConfigError
from atoll.workers.http import Request, Response

MODULE = "atoll_worker_entry"
"""Name under which the user's entry file is imported."""

Fetch = Callable[[Request], Awaitable[Response]]


class Context:
    """What a handler gets as ``ctx``: work that goes on after the answer was sent."""

    def __init__(self) -> None:
        self._pending: set[asyncio.Task[Any]] = set()

    def wait_until(self, work: Awaitable[Any]) -> None:
        """Let *work* go on after the response; the host waits for it before it stops."""
        task = asyncio.ensure_future(_awaited(work))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    @property
    def busy(self) -> bool:
        """Whether work handed to `wait_until` goes on."""
        return bool(self._pending)

    async def finished(self) -> None:
        """Return when all work handed to `wait_until` has ended."""
        while self._pending:
            await asyncio.wait(self._pending)


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


class ScheduledEvent(NamedTuple):
    """What a `scheduled` handler gets."""

    cron: str
    scheduled_time: datetime


class WorkerEntrypoint:
    """Base of a Worker: derive ``Default`` from it and write ``async def fetch(self, request)``.

    Attributes:
        env: bindings, variables and secrets by name.
        ctx: see `Context`.
    """

    def __init__(self, env: Any, ctx: Context) -> None:
        self.env = env
        self.ctx = ctx


def import_entry(file: Path) -> ModuleType:
    """Import the user's entry *file*; its folder is on the import path.

    Raises:
        Exception: whatever the user's code raises.
    """
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(MODULE, file)
    if spec is None or spec.loader is None:
        raise InvalidConfigError(f"{file} is not a Python file", context={"file": str(file)})
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return module


def find_app(module: ModuleType) -> Any | None:
    """Return the ASGI application of *module* when that is its form."""
    if hasattr(module, "Default") or hasattr(module, "on_fetch"):
        return None
    return getattr(module, "app", None)


def find_fetch(module: ModuleType, env: Any, ctx: Context) -> Fetch:
    """Return the function that answers requests.

    Raises:
        InvalidConfigError: *module* has none of the known forms.
    """
    default = getattr(module, "Default", None)
    if inspect.isclass(default) and issubclass(default, WorkerEntrypoint):
        fetch = getattr(default(env, ctx), "fetch", None)
        if inspect.iscoroutinefunction(fetch):
            return fetch
        raise InvalidConfigError(
            f"{module.__file__}: class Default has no `async def fetch(self, request)`",
            context={"file": module.__file__},
        )
    on_fetch = getattr(module, "on_fetch", None)
    if inspect.iscoroutinefunction(on_fetch):

        async def call(request: Request) -> Response:
            response: Response = await on_fetch(request, env, ctx)
            return response

        return call
    raise InvalidConfigError(
        f"{module.__file__}: found no Worker",
        context={"file": module.__file__},
        suggestion="write `class Default(WorkerEntrypoint)` with `async def fetch(self, request)`,"
        " or `async def on_fetch(request, env, ctx)`, or an ASGI application named `app`",
    )


Scheduled = Callable[[ScheduledEvent], Awaitable[Any]]


def find_scheduled(module: ModuleType, env: Any, ctx: Context) -> Scheduled | None:
    """Return what answers cron triggers: a method of ``Default``, or a function; None: nothing.

    Both are called ``scheduled`` (a function may be called ``on_scheduled``) and take the event;
    those that take more get ``env`` and ``ctx`` too.
    """
    default: Any = getattr(module, "Default", None)
    if hasattr(default, "scheduled"):
        handler = default(env, ctx).scheduled
    else:
        handler = getattr(module, "scheduled", None) or getattr(module, "on_scheduled", None)
    if handler is None:
        return None
    takes = len(inspect.signature(handler).parameters)

    async def call(event: ScheduledEvent) -> Any:
        result = handler(*(event, env, ctx)[:takes])
        return await result if inspect.isawaitable(result) else result

    return call
