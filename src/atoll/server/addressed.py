"""Which object of the engine a request's path and headers name."""

from starlette.requests import Request

from atoll.engine.engine import Engine
from atoll.engine.lifecycle import lives
from atoll.engine.sandbox import Sandbox
from atoll.wire.ops import LIFE_HEADER


def sandbox(engine: Engine, request: Request) -> Sandbox:
    """Return the sandbox; nothing is read, made or started.

    Raises:
        InvalidSandboxIdError: its id breaks the rules.
        ValidationFailedError: its namespace does.
    """
    return engine.sandbox(request.path_params["namespace"], request.path_params["id"])


async def note_life(engine: Engine, request: Request) -> None:
    """Remember which life of the sandbox is meant, for all that the request starts.

    Raises:
        StaleHandleError: it is over.
    """
    namespace, id = request.path_params.get("namespace", ""), request.path_params.get("id", "")
    life = request.headers.get(LIFE_HEADER)
    lives.note(namespace, id, life)
    if life and id:
        lives.check(id, life, await engine.sandbox(namespace, id).load())
