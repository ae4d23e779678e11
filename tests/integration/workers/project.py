"""A Worker project served by real processes: an engine and a worker process."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import atoll
from atoll.errors import SandboxError
from atoll.workers import dev, wrangler
from atoll.workers.supervisor import Worker
from integration.server.engines import EngineProcess

CONFIG = {
    "name": "shop",
    "main": "index.py",
    "durable_objects": {"bindings": [{"name": "BOX", "class_name": "Box"}]},
}
FETCH = """
async def on_fetch(request, env, ctx):
    from atoll.workers import Response
    return Response("ok")
"""


class Project:
    """A project in *folder*, at an engine with the state directory beside it."""

    def __init__(self, folder: Path, code: str, level: str = "fake", **config: Any) -> None:
        self.root = folder / "project"
        self.root.mkdir()
        self.write(code, **config)
        self._state = folder / "state"
        self._level = level
        self.engine = EngineProcess(self._state, level=level)
        self.env = atoll.connect(f"unix://{self.engine.hello['socket']}")
        self.said: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:{1}".format(*self._listener.getsockname())
        self.worker: Worker | None = None

    def write(self, code: str, **config: Any) -> None:
        (self.root / "index.py").write_text(code + FETCH)
        (self.root / "wrangler.json").write_text(json.dumps(CONFIG | config))

    async def end(self) -> None:
        """End everything, also what a test has left half done."""
        try:
            for info in await self.env.namespace("shop-box").list():
                await self.box(info.id).destroy()
        finally:
            await self.stop_worker()
            await self.env.aclose()
            self.engine.end()
            self._listener.close()

    @property
    def storage(self) -> Path:
        return self._state / "objects"

    async def start_worker(self) -> None:
        project = wrangler.load(self.root)
        namespaces = await dev.apply(self.env, project, self.said.append)
        self.worker = Worker(
            self.root, None, f"unix://{self.engine.hello['socket']}", self._listener,
            self.said.append, namespaces,
        )  # fmt: skip
        await self.worker.start()

    async def stop_worker(self) -> None:
        if self.worker:
            await self.worker.stop()

    def kill_worker(self) -> None:
        assert self.worker
        assert self.worker._process
        os.kill(self.worker._process.pid, signal.SIGKILL)

    def kill_engine(self) -> None:
        self.engine.end(signal.SIGKILL)

    def start_engine(self) -> None:
        self.engine = EngineProcess(self._state, level=self._level)

    def box(self, id: str = "one", namespace: str = "shop-box") -> atoll.Sandbox:
        return atoll.get_sandbox(self.env.namespace(namespace), id)

    async def eventually(self, ask: Callable[[], Any], want: Callable[[Any], bool] = bool) -> Any:
        """Ask until the answer is as wanted; errors count as not yet."""
        async with asyncio.timeout(30):
            while True:
                try:
                    if want(found := await ask()):
                        return found
                except SandboxError as error:
                    found = error
                await asyncio.sleep(0.05)


@asynccontextmanager
async def serving(
    folder: Path, code: str, level: str = "fake", **config: Any
) -> AsyncIterator[Project]:
    """Serve a project while in the block; end everything after it."""
    project = Project(folder, code, level, **config)
    try:
        await project.start_worker()
        yield project
    finally:
        await project.end()
