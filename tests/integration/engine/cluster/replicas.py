"""Several engines of one cluster whose API is in memory, and whose agents are the test's."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from atoll.cluster_settings import ClusterSettings
from atoll.engine.cluster.following import Following
from atoll.engine.cluster.peers import LeasePeers
from atoll.engine.cluster.store import ClusterStore
from atoll.engine.engine import Engine
from atoll.runtime.kubernetes.api import Api
from atoll.settings import LifecycleSettings, RuntimeSettings, Settings, StorageSettings
from integration.engine.scripted import World
from objects import Objects

Pair = tuple[Engine, Engine]


class Replicas:
    """Opens engines."""

    def __init__(self, world: World, cluster: Objects) -> None:
        self.world, self.cluster = world, cluster

    @asynccontextmanager
    async def opened(
        self,
        actor: str,
        lifecycle: LifecycleSettings | None = None,
        cluster: ClusterSettings | None = None,
    ) -> AsyncIterator[Engine]:
        state_dir: Path = self.world.state_dir / actor
        (state_dir / "run").mkdir(parents=True, exist_ok=True)
        settings = Settings(
            storage=StorageSettings(state_dir=state_dir, cache_dir=state_dir),
            runtime=RuntimeSettings(default="scripted", start_timeout=5),
            lifecycle=lifecycle or LifecycleSettings(),
            cluster=cluster or ClusterSettings(replicas=True),
        )
        api = cast("Api", self.cluster)
        peers = LeasePeers(api, "atoll", actor)
        await peers.open()
        store = await ClusterStore(api, "atoll", actor).open()
        engine_id = await store.meta("engine_id", "e0")
        engine = Engine(settings, store, engine_id, self.world.parts(), peers)
        await engine.recover()
        following = Following(engine, store, peers)
        following.open()
        try:
            yield engine
        finally:
            await following.close()
            await engine.close()
            await store.close()
            await peers.close()


async def until(condition: Callable[[], object]) -> None:
    """Wait until *condition* holds."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)
