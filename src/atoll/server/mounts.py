"""Handlers of mounted buckets."""

from starlette.requests import Request

from atoll.engine.engine import Engine
from atoll.engine.sandbox import Sandbox
from atoll.wire.base import Done, Empty
from atoll.wire.mounts import BucketMount, BucketMounts, MountBucket, UnmountBucket


def _object(engine: Engine, request: Request) -> Sandbox:
    return engine.sandbox(request.path_params["namespace"], request.path_params["id"])


async def mount(engine: Engine, request: Request, wanted: MountBucket) -> BucketMount:
    """Mount a bucket."""
    return await engine.mounts.mount(_object(engine, request), wanted)


async def unmount(engine: Engine, request: Request, wanted: UnmountBucket) -> Done:
    """End a mount."""
    await engine.mounts.unmount(_object(engine, request), wanted.path)
    return Done()


async def listing(engine: Engine, request: Request, wanted: Empty) -> BucketMounts:
    """List the mounts of a sandbox."""
    return await engine.mounts.listing(_object(engine, request))
