"""What went wrong, as clients of the bridge read it: ``{"error": text, "code": code}``. Pure.

Which code a failure has depends on the route, not only on the error: each route names its own in
a `Failure`, which the outermost layer finds in the scope. The caller's own mistakes are 4xx with
``invalid_request``, what the node cannot take now is 503 with ``capacity_exceeded``, and everything
else is 502.
"""

from typing import NamedTuple

import msgspec
from starlette.responses import Response
from starlette.types import Scope

from atoll import errors
from atoll.errors import SandboxError, ValidationFailedError

PREFIX = "/v1"
INVALID = "invalid_request"
TRANSPORT = "exec_transport_error"
READ = "workspace_archive_read_error"
WRITE = "workspace_archive_write_error"
FULL = "capacity_exceeded"
POOL = "pool_error"


class Failure(NamedTuple):
    """How a route names what failed in it: the beginning of the text, and the code."""

    text: str
    code: str
    missing: bool = False  # whether a missing file is an answer of its own


class Body(msgspec.Struct, frozen=True):
    """An error answer."""

    error: str
    code: str


ANY = Failure("request failed", TRANSPORT)

_SCOPE = "bridge.failure"
_CALLERS = (
    errors.ValidationFailedError,
    errors.InvalidCommandError,
    errors.SecurityError,
    errors.InvalidPortError,
    errors.FileTooLargeError,
    errors.RouteNotFoundError,
    errors.TimeoutError,
)
"""The request itself is at fault. A time limit raised before a stream is that of its body."""

_NO_START = (
    errors.ContainerUnavailableError,
    errors.ContainerNotReadyError,
    errors.ImageNotFoundError,
    errors.InvalidImageError,
    errors.ImagePullFailedError,
    errors.RuntimeNotAvailableError,
)


def serves(scope: Scope) -> bool:
    """Whether a request is for the bridge, known to it or not."""
    return str(scope["path"]).startswith(PREFIX + "/")


def expect(scope: Scope, failure: Failure) -> None:
    """Remember how failures of this request are named."""
    scope[_SCOPE] = failure


def refusal(error: SandboxError, scope: Scope, headers: dict[str, str]) -> Response:
    """Return the answer for *error*, before anything of another answer was sent."""
    status, body = described(error, scope.get(_SCOPE, ANY))
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")


def described(error: SandboxError, failure: Failure) -> tuple[int, Body]:
    """Return status and body of the answer for *error*."""
    match error:
        case errors.UnauthorizedError():
            return 401, Body("Unauthorized", "unauthorized")
        case errors.ForbiddenError():
            return 403, Body(error.message, "unauthorized")
        case errors.InvalidSandboxIdError():
            return 400, Body("Invalid sandbox ID format", INVALID)
        case errors.FileNotFoundError() if failure.missing:
            return 404, Body(
                f"File not found: {error.context.get('path')}", "workspace_read_not_found"
            )
    if error.wire_status == 429 or _is_full(error):
        return error.wire_status, Body(error.message, FULL)
    if isinstance(error, _CALLERS):
        return error.wire_status, Body(error.message, INVALID)
    if isinstance(error, _NO_START):
        return 502, Body(f"pool error: {error.message}", POOL)
    return 502, Body(f"{failure.text}: {error.message}", failure.code)


def _is_full(error: SandboxError) -> bool:
    unavailable = isinstance(error, errors.ContainerUnavailableError)
    return isinstance(error, errors.MaxInstancesExceededError) or (
        unavailable and error.context.get("reason") == "capacity"
    )


def invalid(message: str, status: int = 400) -> ValidationFailedError:
    """Return the error for a request that is refused; *message* is all the caller is told."""
    error = ValidationFailedError(message)
    error.wire_status = status
    return error
