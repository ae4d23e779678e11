"""The warm pool as the original tells of it. It belongs to the engine, not to one namespace."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from atoll.engine.engine import Engine
from atoll.server.bridge.files import done
from atoll.server.bridge.sandboxes import encoded
from atoll.wire.pool import Prime


class Config(msgspec.Struct, frozen=True, rename="camel"):
    """What the pool is told to keep; `refresh_interval` in milliseconds."""

    warm_target: int
    refresh_interval: int


class Stats(msgspec.Struct, frozen=True, rename="camel"):
    """Containers by use: `warm` ones wait, `assigned` ones belong to a sandbox."""

    warm: int
    assigned: int
    total: int
    config: Config
    max_instances: int


async def stats(engine: Engine, _request: Request) -> Response:
    """Tell how many containers there are."""
    found = engine.pool_stats()
    config = Config(sum(kind.target for kind in found.kinds), found.refresh_interval_ms)
    most = engine.settings.lifecycle.max_instances
    return encoded(Stats(found.warm, found.assigned, found.total, config, most))


async def prime(engine: Engine, _request: Request) -> Response:
    """Fill the pool up to its targets."""
    await engine.pool.prime(Prime())
    return done()


async def shutdown_prewarmed(engine: Engine, _request: Request) -> Response:
    """Empty the pool."""
    await engine.pool.shutdown()
    return done()
