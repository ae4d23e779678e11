"""The worker process: loads one project and serves it on an inherited listening socket.

`atoll.workers.dev` starts it anew for every change of the project. The socket belongs to the
parent, so connections made during a reload wait instead of being refused. A project that cannot
be loaded is served too: with the error, so that the browser shows what the terminal shows.
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import uvicorn

import atoll
from atoll.errors import InvalidConfigError, SandboxError
from atoll.sdk import _aio
from atoll.sdk._async.sandbox import Sandbox
from atoll.workers import classes as sandbox_classes
from atoll.workers import entry, wrangler
from atoll.workers.app import WorkerApp
from atoll.workers.bindings import Env
from atoll.workers.channel import Channel
from atoll.workers.dates import Dated
from atoll.workers.http import Request, Response
from atoll.workers.objects import Objects


def main() -> None:
    """Run the worker process; see `dev` for its arguments."""
    parser = argparse.ArgumentParser(prog="atoll-worker")
    parser.add_argument("--project", type=Path, required=True)
    parser.add_argument("--environment")
    parser.add_argument("--engine", required=True, help="URL of the engine")
    parser.add_argument("--fd", type=int, required=True, help="the listening socket")
    parser.add_argument("--namespaces", type=json.loads, default={}, help="of classes, JSON")
    parser.add_argument("--production", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level="WARNING", format="%(levelname)s %(name)s: %(message)s")
    threading.Thread(target=_end_with_parent, daemon=True).start()
    asyncio.run(_serve(args))


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


async def _serve(args: argparse.Namespace) -> None:
    async with atoll.connect(args.engine) as engine:
        loaded = _load(args, engine)
        config = uvicorn.Config(
            Dated(loaded.app),
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            ws_max_size=32 << 20,
        )
        with socket.socket(fileno=args.fd) as listener:
            async with served(loaded.channel):
                await uvicorn.Server(config).serve(sockets=[listener])


ATTACH_SECONDS = 2.0
"""How long requests wait for the engine at a start; without it the Worker may still answer some."""


class Loaded(NamedTuple):
    """A Worker that was loaded; without a channel if that failed."""

    app: Any
    channel: Channel | None = None


@asynccontextmanager
async def served(channel: Channel | None) -> AsyncIterator[None]:
    """Serve the engine's calls while in the block, which begins when the engine knows of it."""
    if channel is None:
        yield
        return
    serving = asyncio.create_task(channel.serve())
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(ATTACH_SECONDS):
                await channel.attached.wait()
        yield
    finally:
        serving.cancel()
        await asyncio.wait([serving])
        await channel.close()


def _load(args: argparse.Namespace, engine: Any) -> Loaded:
    ctx, dev = entry.Context(), not args.production
    try:
        project = wrangler.load(args.project, args.environment)
        module = entry.import_entry(project.entry)
        classes = find_classes(project, module, args.namespaces)
        env = make_env(project, engine, classes, local=dev)
        channel = _channel(project, module, engine, env, ctx, classes)
        app = entry.find_app(module)
        if app is None:
            app = WorkerApp(entry.find_fetch(module, env, ctx), ctx, dev=dev)
        else:
            app.env = env
        return Loaded(app, channel)
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises is shown
        logging.getLogger("atoll.worker").error("the Worker cannot be loaded:\n%s", _told(error))
        return Loaded(WorkerApp(_broken(error), ctx, dev=dev))


Classes = dict[str, tuple[str, type[Sandbox]]]
"""Name of a class → its namespace and the class."""


def find_classes(
    project: wrangler.Project, module: ModuleType, namespaces: dict[str, str]
) -> Classes:
    """Return the sandbox classes that *project* has bindings for.

    Args:
        project: the project.
        module: its entry.
        namespaces: of classes, as the engine decided; for others the configuration says.
    """
    names = {binding.class_name for binding in project.config.durable_objects.bindings}
    return {
        name: (
            namespaces.get(name, project.config.namespace(name)),
            sandbox_classes.find(module, name, str(project.file)),
        )
        for name in names
    }


def make_env(
    project: wrangler.Project, engine: Any, classes: Classes, *, local: bool = True
) -> Env:
    """Return the ``env`` of *project*: namespaces of its classes, and its buckets.

    Raises:
        InvalidConfigError: not *local*, and a bucket has no key.
    """
    config = project.config
    bindings: dict[str, Any] = {
        binding.name: sandbox_classes.bound(engine, *classes[binding.class_name])
        for binding in config.durable_objects.bindings
    }
    if config.r2_buckets:
        from atoll.workers.buckets import opening

        texts = {name: value for name, value in config.vars.items() if isinstance(value, str)}
        values = {**_aio.environment(), **texts, **project.secrets}
        bindings |= opening.opened(config.r2_buckets, project.root, values, local=local)
    return Env(bindings, config.vars, project.secrets)


def _channel(
    project: wrangler.Project,
    module: ModuleType,
    engine: Any,
    env: Env,
    ctx: entry.Context,
    classes: Classes,
) -> Channel:
    crons = project.config.triggers.crons
    handler = entry.find_scheduled(module, env, ctx)
    if crons and handler is None:
        raise InvalidConfigError(
            f"{project.file} has triggers.crons, and {module.__file__} no `scheduled` handler",
            context={"file": str(project.file)},
            suggestion="write `async def scheduled(self, event)` in class Default",
        )

    async def scheduled(cron: str, time: str) -> None:
        if handler is not None:
            await handler(entry.ScheduledEvent(cron, datetime.fromisoformat(time)))

    return Channel(
        engine.transport,
        project.config.name,
        [sandbox_classes.describe(cls, namespace) for namespace, cls in classes.values()],
        crons,
        Objects(engine, dict(classes.values()), env),
        scheduled,
        project.root / ".atoll" / "objects",
    )


def _told(error: Exception) -> str:
    if isinstance(error, SandboxError):
        return str(error)
    return "".join(traceback.format_exception(error))


def _broken(error: Exception) -> entry.Fetch:
    async def fetch(_: Request) -> Response:
        raise error

    return fetch


if __name__ == "__main__":
    main()
