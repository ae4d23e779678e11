"""The original's warm pool, as far as this engine has one: sandboxes start when they are used."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from atoll.engine.engine import Engine
from atoll.server.bridge.files import done
from atoll.server.bridge.requests import namespace
from atoll.server.bridge.sandboxes import encoded
from atoll.wire.sandbox import State

REFRESH_INTERVAL = 10_000
"""Milliseconds: the original's default. Nothing is refreshed here."""


class Config(msgspec.Struct, frozen=True, rename="camel"):
    """What the pool was told to keep."""

    warm_target: int = 0
    refresh_interval: int = REFRESH_INTERVAL


class Stats(msgspec.Struct, frozen=True, rename="camel"):
    """Containers by use: `warm` ones wait, `assigned` ones belong to a sandbox."""

    warm: int
    assigned: int
    total: int
    config: Config
    max_instances: int


async def stats(engine: Engine, request: Request) -> Response:
    """Tell how many containers there are of the caller's namespace."""
    running, cursor = 0, None
    while True:
        page = await engine.list(
            namespace(request), state=State.RUNNING, labels={}, cursor=cursor, limit=1_000
        )
        running, cursor = running + len(page.sandboxes), page.cursor
        if cursor is None:
            break
    most = engine.settings.lifecycle.max_instances
    return encoded(Stats(0, running, running, Config(), most))


async def nothing(_engine: Engine, _request: Request) -> Response:
    """Do what there is to do for a pool that is empty."""
    return done()
