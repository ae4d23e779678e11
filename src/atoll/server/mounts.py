"""Handlers of mounted buckets."""

from starlette.requests import Request

from atoll.engine.engine import Engine
from atoll.server import addressed
from atoll.wire.base import Done, Empty
from atoll.wire.mounts import BucketMount, BucketMounts, MountBucket, UnmountBucket


async def mount(engine: Engine, request: Request, wanted: MountBucket) -> BucketMount:
    """Mount a bucket."""
    return await engine.mounts.mount(addressed.sandbox(engine, request), wanted)


async def unmount(engine: Engine, request: Request, wanted: UnmountBucket) -> Done:
    """End a mount."""
    await engine.mounts.unmount(addressed.sandbox(engine, request), wanted.path)
    return Done()


async def listing(engine: Engine, request: Request, wanted: Empty) -> BucketMounts:
    """List the mounts of a sandbox."""
    return await engine.mounts.listing(addressed.sandbox(engine, request))
