"""The worker process: loads one project and serves it on an inherited listening socket.

`atoll.workers.dev` starts it anew for every change of the project. The socket belongs to the
parent, so connections made during a reload wait instead of being refused. A project that cannot
be loaded is served too: with the error, so that the browser shows what the terminal shows.
"""

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import uvicorn

import atoll
from atoll.errors import SandboxError
from atoll.workers import entry, wrangler
from atoll.workers.app import WorkerApp
from atoll.workers.bindings import Env
from atoll.workers.http import Request, Response


def main() -> None:
    """Run the worker process; see `dev` for its arguments."""
    parser = argparse.ArgumentParser(prog="atoll-worker")
    parser.add_argument("--project", type=Path, required=True)
    parser.add_argument("--environment")
    parser.add_argument("--engine", required=True, help="URL of the engine")
    parser.add_argument("--fd", type=int, required=True, help="the listening socket")
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
        app = _load(args.project, args.environment, engine, dev=not args.production)
        config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False, ws_max_size=32 << 20)
        with socket.socket(fileno=args.fd) as listener:
            await uvicorn.Server(config).serve(sockets=[listener])


def _load(root: Path, environment: str | None, engine: Any, *, dev: bool) -> Any:
    ctx = entry.Context()
    try:
        project = wrangler.load(root, environment)
        module = entry.import_entry(project.entry)
        app = entry.find_app(module)
        env = make_env(project, engine)
        if app is not None:
            app.env = env
            return app
        return WorkerApp(entry.find_fetch(module, env, ctx), ctx, dev=dev)
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises is shown
        logging.getLogger("atoll.worker").error("the Worker cannot be loaded:\n%s", _told(error))
        return WorkerApp(_broken(error), ctx, dev=dev)


def make_env(project: wrangler.Project, engine: Any) -> Env:
    """Return the ``env`` of *project*: each binding is the namespace of its class."""
    config = project.config
    bindings = {
        binding.name: engine.namespace(config.namespace(binding.class_name))
        for binding in config.durable_objects.bindings
    }
    return Env(bindings, config.vars, project.secrets)


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
