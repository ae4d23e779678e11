from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest

from atoll.engine.engine import Engine
from atoll.engine.store.store import Store
from atoll.settings import (
    BackupSettings,
    LifecycleSettings,
    PoolSettings,
    RuntimeSettings,
    ServerSettings,
    Settings,
    StorageSettings,
)
from integration.engine.cluster.replicas import Pair, Replicas
from integration.engine.scripted import World
from objects import Objects


class Opener(Protocol):
    """Opens an engine on the world of the test, as often as the test likes."""

    def __call__(
        self,
        lifecycle: LifecycleSettings | None = None,
        start_timeout: float = 5.0,
        pool: PoolSettings | None = None,
        backups: BackupSettings | None = None,
    ) -> AbstractAsyncContextManager[Engine]: ...


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "run").mkdir()
    return World(tmp_path)


@pytest.fixture
def opener(world: World) -> Opener:
    @asynccontextmanager
    async def opened(
        lifecycle: LifecycleSettings | None = None,
        start_timeout: float = 5.0,
        pool: PoolSettings | None = None,
        backups: BackupSettings | None = None,
    ) -> AsyncIterator[Engine]:
        settings = Settings(
            storage=StorageSettings(state_dir=world.state_dir, cache_dir=world.state_dir),
            runtime=RuntimeSettings(default="scripted", start_timeout=start_timeout),
            lifecycle=lifecycle or LifecycleSettings(),
            pool=pool or PoolSettings(),
            backups=backups or BackupSettings(),
            server=ServerSettings(port=0),
        )
        store = await Store(world.state_dir / "atoll.db").open()
        engine = Engine(settings, store, "e0", world.parts())
        try:
            await engine.recover()
            yield engine
        finally:
            await engine.close()
            await store.close()

    return opened


@pytest.fixture
async def engine(opener: Opener) -> AsyncIterator[Engine]:
    async with opener() as found:
        yield found


@pytest.fixture
def cluster() -> Objects:
    return Objects()


@pytest.fixture
def replicas(world: World, cluster: Objects) -> Replicas:
    return Replicas(world, cluster)


@pytest.fixture
async def pair(replicas: Replicas) -> AsyncIterator[Pair]:
    async with replicas.opened("a") as first, replicas.opened("b") as second:
        yield first, second
