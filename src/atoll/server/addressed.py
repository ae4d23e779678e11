"""Which object of the engine a request's path names."""

from starlette.requests import Request

from atoll.engine.engine import Engine
from atoll.engine.sandbox import Sandbox


def sandbox(engine: Engine, request: Request) -> Sandbox:
    """Return the sandbox; nothing is read, made or started.

    Raises:
        InvalidSandboxIdError: its id breaks the rules.
        ValidationFailedError: its namespace does.
    """
    return engine.sandbox(request.path_params["namespace"], request.path_params["id"])
