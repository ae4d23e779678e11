"""Keys and the audit record over HTTP: who may call, and who did."""

from starlette.requests import Request

from atoll.engine.engine import Engine
from atoll.wire.base import Done, Empty
from atoll.wire.keys import AuditPage, AuditQuery, CreatedKey, CreateKey, KeyList


async def create_key(engine: Engine, request: Request, wanted: CreateKey) -> CreatedKey:
    """Make a key; this answer is the only one that has its text."""
    return await engine.keys.create(wanted)


async def list_keys(engine: Engine, request: Request, wanted: Empty) -> KeyList:
    """Return all keys, without their texts."""
    return KeyList(keys=engine.keys.listing())


async def revoke_key(engine: Engine, request: Request, wanted: Empty) -> Done:
    """Forget a key and end what it has under way."""
    id = request.path_params["key"]
    await engine.keys.revoke(id)
    request.scope["call"].end_others(id)
    return Done()


async def audit(engine: Engine, request: Request, wanted: AuditQuery) -> AuditPage:
    """Return records of mutating calls, newest first."""
    return await engine.audit.read(wanted)
