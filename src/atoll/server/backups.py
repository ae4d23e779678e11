"""Handlers of backups."""

from starlette.requests import Request

from atoll.engine.engine import Engine
from atoll.server import addressed
from atoll.wire.backups import (
    BackupPage,
    CreateBackup,
    DirectoryBackup,
    ListBackups,
    RestoreBackup,
    Restored,
)
from atoll.wire.base import Done, Empty


async def create(engine: Engine, request: Request, wanted: CreateBackup) -> DirectoryBackup:
    """Back up a directory."""
    return await engine.backups.create(addressed.sandbox(engine, request), wanted)


async def restore(engine: Engine, request: Request, wanted: RestoreBackup) -> Restored:
    """Put a backup back."""
    return await engine.backups.restore(addressed.sandbox(engine, request), wanted)


async def listing(engine: Engine, request: Request, wanted: ListBackups) -> BackupPage:
    """List a namespace's backups."""
    return await engine.backups.list(request.path_params["namespace"], wanted)


async def get(engine: Engine, request: Request, wanted: Empty) -> DirectoryBackup:
    """Return one backup."""
    return await engine.backups.get(request.path_params["namespace"], request.path_params["backup"])


async def delete(engine: Engine, request: Request, wanted: Empty) -> Done:
    """Forget one backup."""
    await engine.backups.delete(request.path_params["namespace"], request.path_params["backup"])
    return Done()
