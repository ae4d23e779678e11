"""Every error has an exit code, and none looks like success."""

import pytest

from atoll import errors
from atoll.cli.exit_codes import exit_code


def test_every_registered_error_has_a_code_that_is_not_zero() -> None:
    for cls in errors.registry().values():
        assert 0 < exit_code(cls("x")) < 128


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.CommandNotFoundError("x"), 127),
        (errors.CommandPermissionDeniedError("x"), 126),
        (errors.TimeoutError("x"), 124),
        (errors.EngineUnreachableError("x"), 69),
        (errors.MaxInstancesExceededError("x"), 75),
        (errors.SessionTerminatedError("x", context={"exit_code": 7}), 7),
        (errors.CommandFailedError("x", context={"exit_code": 3}), 3),
        (errors.SessionTerminatedError("x"), 1),
        (errors.from_wire({"code": "NEW_ONE", "httpStatus": 404}), 66),
        (errors.SandboxError("x"), 70),
    ],
)
def test_codes_are_those_of_shells_and_sysexits(error: errors.SandboxError, code: int) -> None:
    assert exit_code(error) == code
