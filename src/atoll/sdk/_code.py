"""What the calls of the code interpreter share: requests, variables, events as text."""

import base64
import io
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from atoll import errors
from atoll.sdk import _arguments, _shared
from atoll.wire.base import Duration
from atoll.wire.code_stream import CodeEvent, Collector, event_shape, timed_out
from atoll.wire.interpreter import (
    DEFAULT_CODE_TIMEOUT_MS,
    ExecutionComplete,
    ExecutionResult,
    RunCodeRequest,
)
from atoll.wire.process import Failed

MAX_VARIABLES = 5 << 20
"""Bytes of all variables of one context; they travel in its request."""


def run_request(
    code: str,
    context: str | None,
    language: str | None,
    env_vars: Mapping[str, str | None] | None,
    timeout: Duration | UnsetType | None,
    session: str | None,
    default_ms: int | None = DEFAULT_CODE_TIMEOUT_MS,
) -> RunCodeRequest:
    """Return the checked request of a run.

    Raises:
        ValidationFailedError: the code is no text.
    """
    if not isinstance(code, str):
        raise errors.ValidationFailedError("code must be text", context={"field": "code"})
    request = RunCodeRequest(
        code=code,
        context=context,
        language=language,
        env_vars=_arguments.mapping("env_vars", env_vars),
        timeout_ms=default_ms if timeout is UNSET else _arguments.time_limit(timeout),
        session=session,
    )
    _shared.check_request(request)
    return request


def variable_forms(variables: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return *variables* as they travel: JSON values, bytes, and pandas frames by parquet.

    Raises:
        ValidationFailedError: a name is no identifier, or a value has no form.
        FileTooLargeError: they are more than `MAX_VARIABLES` together.
    """
    if not isinstance(variables, Mapping | None):
        raise errors.ValidationFailedError(
            "variables is no mapping of names to values", context={"field": "variables"}
        )
    forms = {name: _form(name, value) for name, value in (variables or {}).items()}
    if len(msgspec.json.encode(forms)) > MAX_VARIABLES:
        raise errors.FileTooLargeError(
            f"the variables have more than {MAX_VARIABLES >> 20} MiB",
            context={"limit": MAX_VARIABLES},
            suggestion="write_file() takes any size; read the file in the code",
        )
    return forms


def _form(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(name, str) or not name.isidentifier():
        raise errors.ValidationFailedError(
            f"{name!r} is no name of a variable", context={"field": "variables"}
        )
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": base64.b64encode(value).decode()}
    if hasattr(value, "to_parquet"):
        return {"parquet": base64.b64encode(_parquet(name, value)).decode()}
    try:
        return {"json": msgspec.json.decode(msgspec.json.encode(value))}
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.ValidationFailedError(
            f"variable {name!r} cannot be sent: {error}",
            context={"field": "variables", "name": name},
            suggestion="pass JSON values, bytes or pandas frames",
        ) from error


def _parquet(name: str, frame: Any) -> bytes:
    target = io.BytesIO()
    try:
        frame.to_parquet(target)
    except (ImportError, TypeError, ValueError, NotImplementedError) as error:
        missing = isinstance(error, ImportError)
        raise errors.ValidationFailedError(
            f"variable {name!r} cannot be sent: {error}",
            context={"field": "variables", "name": name},
            suggestion="install pyarrow here; frames travel as parquet" if missing else None,
        ) from error
    return target.getvalue()


def check(
    result: ExecutionResult, end: ExecutionComplete | None, failed: Failed | None
) -> ExecutionResult:
    """Return *result*, or raise what its end means for a caller who waits for it.

    Raises:
        TimeoutError: the time was over; `.result` is what there is.
        OperationInterruptedError: somebody else cancelled it.
        KernelDiedError: the interpreter ended under the code.
    """
    error: errors.SandboxError
    if failed is not None:
        error = errors.from_wire(failed.error)
    elif end is None:
        error = _shared.lost("run_code", "its stream ended")
    elif end.timed_out:
        error = timed_out(result)
    elif end.cancelled:
        error = errors.OperationInterruptedError(
            "the code was cancelled", context={"restarted": end.restarted}
        )
    else:
        return result
    error.result = result
    raise error


def sse(event: CodeEvent) -> bytes:
    """Return one event as it stands in a ``text/event-stream`` body; empty when it has no shape."""
    shape = event_shape(event)
    return b"data: " + msgspec.json.encode(shape) + b"\n\n" if shape else b""


__all__ = ["Collector", "check", "run_request", "sse", "variable_forms"]
