"""Engines as processes of their own that serve one namespace of the cluster, and a way to all of them."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2

import clusters
from atoll.engine.cluster.documents import GROUP, PLURALS, definition
from atoll.runtime.kubernetes import api
from atoll.runtime.kubernetes.api import ApiError
from integration.server.engines import EngineProcess

_READ = 1 << 16
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Fleet:
    """Replicas, and a port that reaches one of those that live: what a Service does."""

    def __init__(self, base: Path) -> None:
        self._base, self._made = base, 0
        self.replicas: list[EngineProcess] = []
        self.preferred: EngineProcess | None = None
        self.url = ""

    async def add(self, **settings: str) -> EngineProcess:
        """Start one more replica, with a disk of its own that nobody needs."""
        self._made += 1
        base = self._base / f"replica{self._made}"
        told = {"ATOLL_CLUSTER_REPLICAS": "true", **clusters.environment(), **settings}
        found = await asyncio.to_thread(
            EngineProcess, base, "--port", "0", level="kubernetes", settings=told
        )
        assert "url" in found.hello, found.hello or found.log
        self.replicas.append(found)
        return found

    async def lost(self, replica: EngineProcess) -> None:
        """Take note of one that killed itself."""
        self.replicas.remove(replica)
        await asyncio.to_thread(replica.wait)

    async def drop(self, replica: EngineProcess) -> None:
        """Tell one to end, and wait until it has."""
        self.replicas.remove(replica)
        await asyncio.to_thread(replica.end)

    async def kill(self, replica: EngineProcess) -> None:
        """End one without a word."""
        self.replicas.remove(replica)
        await asyncio.to_thread(replica.end, signal.SIGKILL)

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        order = [self.preferred, *self.replicas] if self.preferred else self.replicas
        for replica in order:
            if replica not in self.replicas:
                continue
            with suppress(OSError):
                url = httpx2.URL(replica.hello["url"])
                there = await asyncio.open_connection(url.host, url.port)
                await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))
                return
        writer.close()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_READ):
            sink.write(data)
            await sink.drain()
    sink.close()


async def define() -> None:
    """Install the custom resources where they are missing."""
    async with clusters.connected() as cluster:
        for kind, plural in PLURALS.items():
            with _unless_there():
                await cluster.create(_DEFINITIONS, definition(kind))
            records = api.path(clusters.settings().namespace, plural, group=f"apis/{GROUP}")
            async with asyncio.timeout(30):
                while await cluster.get(records) is None:
                    await asyncio.sleep(0.1)


@contextmanager
def _unless_there() -> Iterator[None]:
    """Go on where there is one already."""
    try:
        yield
    except ApiError as error:
        if not error.conflict:
            raise


@asynccontextmanager
async def opened(base: Path, count: int = 2, **settings: str) -> AsyncIterator[Fleet]:
    """Yield *count* replicas."""
    await define()
    fleet = Fleet(base)
    door = await asyncio.start_server(fleet._visit, "127.0.0.1", 0)
    fleet.url = f"http://127.0.0.1:{door.sockets[0].getsockname()[1]}"
    try:
        for _ in range(count):
            await fleet.add(**settings)
        yield fleet
    finally:
        door.close()
        for replica in fleet.replicas:
            await asyncio.to_thread(replica.end)


async def call(replica: EngineProcess, method: str, path: str, **body: Any) -> Any:
    """Make one request to one replica; return its JSON."""
    url = f"{replica.hello['url']}{path}"
    async with httpx2.AsyncClient(timeout=120) as client:
        answer = await client.request(method, url, json=body or None)
    assert answer.status_code < 400, answer.text
    return json.loads(answer.text) if answer.text else None
