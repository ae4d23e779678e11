"""Exit codes of `atoll`, from the registry of errors. Pure.

A command that was run gives its own code. Failures of Atoll get the codes of sysexits.h (64 to
78), which programs hardly use, so that a caller can tell the two apart; where shells have a word
for the failure (not found, not executable, timed out) it is theirs.
"""

from atoll.errors import (
    CommandFailedError,
    CommandNotFoundError,
    CommandPermissionDeniedError,
    EngineUnreachableError,
    SandboxError,
    SessionTerminatedError,
)

USAGE, DATA, NO_INPUT, UNAVAILABLE, SOFTWARE = 64, 65, 66, 69, 70
CANNOT_CREATE, TRY_AGAIN, PROTOCOL, NO_PERMISSION, CONFIG = 73, 75, 76, 77, 78
TIMED_OUT, NOT_EXECUTABLE, NOT_FOUND, INTERRUPTED = 124, 126, 127, 130

_BY_STATUS = {
    400: USAGE,
    401: NO_PERMISSION,
    403: NO_PERMISSION,
    404: NO_INPUT,
    408: TIMED_OUT,
    409: TRY_AGAIN,
    410: UNAVAILABLE,
    413: DATA,
    416: DATA,
    426: PROTOCOL,
    429: TRY_AGAIN,
    501: CONFIG,
    502: UNAVAILABLE,
    503: TRY_AGAIN,
    507: CANNOT_CREATE,
}


def exit_code(error: SandboxError) -> int:
    """Return the exit code for *error*; the code of the command itself where it has one."""
    if isinstance(error, CommandFailedError | SessionTerminatedError):
        code = error.context.get("exit_code", error.context.get("exitCode"))
        return code if isinstance(code, int) else 1
    if isinstance(error, CommandNotFoundError):
        return NOT_FOUND
    if isinstance(error, CommandPermissionDeniedError):
        return NOT_EXECUTABLE
    if isinstance(error, EngineUnreachableError):
        return UNAVAILABLE
    return _BY_STATUS.get(error.wire_status, SOFTWARE)
