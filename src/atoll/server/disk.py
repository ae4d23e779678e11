"""Handlers of the accounts of the disk."""

from starlette.requests import Request

from atoll.engine.engine import Engine
from atoll.wire.disk import Collect, Collected, DiskQuery, DiskUsage


async def usage(engine: Engine, request: Request, wanted: DiskQuery) -> DiskUsage:
    """Tell what a namespace takes."""
    return await engine.disk.usage(request.path_params["namespace"], wanted.limit)


async def collect(engine: Engine, _request: Request, wanted: Collect) -> Collected:
    """Collect what nobody needs, or tell what it is."""
    return await engine.disk.collect(dry_run=wanted.dry_run)
