"""Secrets over HTTP: put, named, deleted; never told."""

from starlette.requests import Request

from atoll.engine.engine import Engine
from atoll.wire.base import Done, Empty
from atoll.wire.secrets import PutSecret, SecretInfo, SecretList


async def put(engine: Engine, request: Request, wanted: PutSecret) -> SecretInfo:
    """Keep a value; what runs uses it from now on."""
    namespace, name = _target(request)
    info = await engine.secrets.put(namespace, name, wanted)
    await engine.apply_policies(namespace)
    return info


async def listing(engine: Engine, request: Request, wanted: Empty) -> SecretList:
    """Return the names of a namespace's secrets."""
    return SecretList(secrets=await engine.secrets.listing(request.path_params["namespace"]))


async def delete(engine: Engine, request: Request, wanted: Empty) -> Done:
    """Forget a value; what runs is refused what needs it."""
    namespace, name = _target(request)
    await engine.secrets.delete(namespace, name)
    await engine.apply_policies(namespace)
    return Done()


def _target(request: Request) -> tuple[str, str]:
    return request.path_params["namespace"], request.path_params["secret"]
