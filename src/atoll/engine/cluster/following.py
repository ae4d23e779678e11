"""Keeps one replica's engine in step with what the others write.

What is looked up in memory, because every request needs it, is read again when its object changed:
keys, namespaces, ports. Of a sandbox its own object does what is asked for (`lifecycle.joining`).
"""

import asyncio
from typing import Final

import structlog

from atoll.engine.cluster.documents import Key
from atoll.engine.cluster.keeping import Keeping
from atoll.engine.cluster.peers import LeasePeers
from atoll.engine.cluster.store import ClusterStore
from atoll.engine.engine import Engine
from atoll.engine.lifecycle import ending, joining
from atoll.errors import SandboxError
from atoll.host.tasks import Tasks

log = structlog.get_logger(__name__)

TEND: Final = 5.0
"""Seconds between two looks for what a replica that died left under way."""


class Following:
    """Follows the store for an engine.

    Args:
        engine: the engine of this replica.
        store: what it follows.
        peers: the other replicas.
    """

    def __init__(self, engine: Engine, store: ClusterStore, peers: LeasePeers) -> None:
        self._engine, self._store = engine, store
        self._keeping = Keeping(engine, store, peers)
        self._tasks = Tasks()
        self._busy: set[Key] = set()
        self._again: set[Key] = set()

    def open(self) -> None:
        """Begin."""
        self._tasks.begin(self._hear())
        self._tasks.begin(self._tend())
        self._tasks.begin(self._keeping.run())

    async def close(self) -> None:
        """Follow no more."""
        await self._tasks.close()

    async def _hear(self) -> None:
        while True:
            key = await self._store.foreign.get()
            if key in self._busy:
                self._again.add(key)
            else:
                self._busy.add(key)
                self._tasks.begin(self._follow(key))

    async def _follow(self, key: Key) -> None:
        """Follow one object; what happens to it meanwhile is followed once more."""
        while True:
            self._again.discard(key)
            try:
                await self._take_over(key)
            except Exception as error:  # one object must not keep the others waiting
                known = isinstance(error, SandboxError)
                log.warning(
                    "not followed", key=key, reason=str(error), exc_info=None if known else error
                )
            if key not in self._again:
                self._busy.discard(key)
                return

    async def _take_over(self, key: Key) -> None:
        match key.topic:
            case "sandbox":
                namespace, id = key.parts
                await self._keeping.heard(namespace, id)
                await self._engine.ports.refresh((namespace, id))
                await joining.followed(self._engine.sandbox(namespace, id))
            case "namespace":
                await self._engine.refresh_namespace(key.parts[0])
            case "key":
                await self._engine.keys.load()

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(TEND)
            for record in await self._store.owners():
                box = self._engine.sandbox(*record.key)
                try:
                    await box.load()
                    if joining.left_behind(box):
                        await box.alone("stop", lambda box=box: ending.clean_up(box))  # type: ignore[misc]
                    elif joining.unmet(box):
                        await joining.followed(box)
                except SandboxError as error:
                    log.warning("left as it is", sandbox=record.id, reason=str(error))
