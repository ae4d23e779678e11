import pytest

from atoll import errors
from atoll.errors import SandboxError
from atoll.server.bridge.failures import ANY, Failure, described, invalid, serves

READING = Failure("read failed", "exec_transport_error", missing=True)
FULL = {"reason": "capacity"}


@pytest.mark.parametrize(
    ("error", "failure", "status", "text", "code"),
    [
        (errors.UnauthorizedError("no"), ANY, 401, "Unauthorized", "unauthorized"),
        (errors.ForbiddenError("small"), ANY, 403, "small", "unauthorized"),
        (errors.RouteNotFoundError("none"), ANY, 404, "none", "invalid_request"),
        (errors.InvalidSandboxIdError("-"), ANY, 400, "Invalid sandbox ID format", None),
        (errors.SecurityError("evil tar"), ANY, 400, "evil tar", "invalid_request"),
        (errors.FileTooLargeError("big"), ANY, 413, "big", "invalid_request"),
        (errors.RateLimitedError("slow"), ANY, 429, "slow", "capacity_exceeded"),
        (errors.MaxInstancesExceededError("full"), ANY, 503, "full", "capacity_exceeded"),
        (
            errors.ContainerUnavailableError("no room", context=FULL),
            *(ANY, 503, "no room", "capacity_exceeded"),
        ),
        (errors.ImageNotFoundError("none"), ANY, 502, "pool error: none", "pool_error"),
        (
            errors.FileNotFoundError("x", context={"path": "/workspace/x"}),
            *(READING, 404, "File not found: /workspace/x", "workspace_read_not_found"),
        ),
        (errors.FileNotFoundError("x"), ANY, 502, "request failed: x", "exec_transport_error"),
        (
            errors.IsDirectoryError("a directory"),
            *(READING, 502, "read failed: a directory", "exec_transport_error"),
        ),
        (errors.InternalError("fault"), ANY, 502, "request failed: fault", "exec_transport_error"),
    ],
)
def test_every_failure_has_the_status_and_code_that_clients_know(
    error: SandboxError, failure: Failure, status: int, text: str, code: str | None
) -> None:
    told, body = described(error, failure)
    assert (told, body.error, body.code) == (status, text, code or "invalid_request")


def test_what_is_refused_has_the_status_it_is_given() -> None:
    assert described(invalid("outside", 403), ANY)[0] == 403


@pytest.mark.parametrize(
    ("path", "ours"), [("/v1/sandbox", True), ("/v1/nope", True), ("/v1", False), ("/v2/x", False)]
)
def test_only_the_prefix_tells_whose_a_request_is(path: str, ours: bool) -> None:
    assert serves({"type": "http", "path": path}) is ours
