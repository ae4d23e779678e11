"""Code contexts of a running sandbox: what callers do with them, in terms of the agent's operations.

Contexts are processes: they end when the sandbox stops, and reading them wakes nothing.
"""

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from atoll.engine.lifecycle import failures
from atoll.engine.link.link import LinkError
from atoll.engine.sandbox import Sandbox
from atoll.errors import ContextNotFoundError, ValidationFailedError
from atoll.wire.agent import OUTPUT_LIMIT
from atoll.wire.base import Result
from atoll.wire.frames import Frame
from atoll.wire.interpreter import (
    ContextInfo,
    ContextList,
    CreateContextRequest,
    Interrupted,
    RunCodeRequest,
    VariableList,
)

ResultT = TypeVar("ResultT", bound=Result)

OPENING = 90.0
"""Seconds the first context may take: imports from a cold disk on a busy machine."""

_FORMS = frozenset({"json", "bytes", "parquet"})
_PARQUET = b"PAR1"
"""Both ends of every parquet file."""


def code_header(
    request: RunCodeRequest, id: str, *, cancel_on_drop: bool, buffered: bool
) -> dict[str, Any]:
    """Return what the agent is asked for *request*. Pure."""
    return {
        "op": "code.run",
        "id": id,
        "code": request.code,
        "context": request.context,
        "language": request.language,
        "env": request.env_vars,
        "session": request.session,
        "timeout": None if request.timeout_ms is None else request.timeout_ms / 1000,
        "output_limit": OUTPUT_LIMIT if buffered else None,
        "cancel_on_drop": cancel_on_drop,
    }


@asynccontextmanager
async def run(
    sandbox: Sandbox,
    request: RunCodeRequest,
    operation: str,
    *,
    cancel_on_drop: bool,
    buffered: bool,
) -> AsyncIterator[AsyncIterator[Frame]]:
    """Run code, or attach to the run of this *operation* id, and yield its frames."""
    if request.context is not None:
        _check_awake(sandbox, request.context)
    async with sandbox.use():
        header = code_header(request, operation, cancel_on_drop=cancel_on_drop, buffered=buffered)
        async with sandbox.running_operations(operation).run(header) as frames:
            yield frames


def check_variables(given: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse what is no variable of a `CreateContextRequest`. Pure.

    Raises:
        ValidationFailedError: a name is no identifier, or a value has none of the forms.
    """
    for name, form in given.items():
        field = f"variables.{name}"
        if not name.isidentifier():
            raise ValidationFailedError(
                f"{name!r} is no name of a variable", context={"field": "variables", "name": name}
            )
        if len(form) != 1 or not form.keys() <= _FORMS:
            raise ValidationFailedError(
                f"{field} has not exactly one of {', '.join(sorted(_FORMS))}",
                context={"field": field},
                suggestion='{"json": value}, {"bytes": base64} or {"parquet": base64}',
            )
        if "json" not in form:
            _check_bytes(field, *form.items())


def _check_bytes(field: str, form: tuple[str, Any]) -> None:
    kind, value = form
    try:
        data = base64.b64decode(value, validate=True)
    except (TypeError, ValueError) as error:
        raise ValidationFailedError(
            f"{field}.{kind} is no base64", context={"field": f"{field}.{kind}"}
        ) from error
    if kind == "parquet" and not (data.startswith(_PARQUET) and data.endswith(_PARQUET)):
        raise ValidationFailedError(
            f"{field}.parquet is no parquet file", context={"field": f"{field}.parquet"}
        )


async def create(sandbox: Sandbox, wanted: CreateContextRequest) -> ContextInfo:
    """Make a context; ready when this returns.

    Raises:
        ValidationFailedError: a variable has no proper form.
    """
    check_variables(wanted.variables)
    header = {
        "op": "code.create",
        "language": wanted.language,
        "cwd": wanted.cwd,
        "env": wanted.env_vars,
        "variables": wanted.variables,
        "session": wanted.session,
    }
    async with sandbox.use() as endpoint:
        return _decoded(await endpoint.call(header, timeout=OPENING), ContextInfo)


async def listing(sandbox: Sandbox) -> ContextList:
    """Return the contexts; a sandbox that sleeps has none."""
    endpoint = await sandbox.awake()
    if endpoint is None:
        return ContextList(contexts=[])
    try:
        return _decoded(await endpoint.call({"op": "code.list"}), ContextList)
    except LinkError as error:
        reason = await failures.explained(sandbox, endpoint, error)
        if await sandbox.awake():
            raise reason from error
        return ContextList(contexts=[])


def _check_awake(sandbox: Sandbox, context: str) -> None:
    """Refuse a context of a sandbox that sleeps: it has none, and is not started to find that out.

    Raises:
        ContextNotFoundError: it sleeps, or there is no such sandbox.
    """
    if sandbox.endpoint is None:
        raise ContextNotFoundError(
            f"no code context {context!r}",
            context={"contextId": context},
            suggestion="contexts end with the sandbox's sleep; create it again",
        )


async def delete(sandbox: Sandbox, context: str) -> None:
    """End a context with everything below it."""
    _check_awake(sandbox, context)
    async with sandbox.use() as endpoint:
        await endpoint.call({"op": "code.delete", "context": context})


async def interrupt(sandbox: Sandbox, context: str) -> Interrupted:
    """Interrupt what runs in a context."""
    _check_awake(sandbox, context)
    async with sandbox.use() as endpoint:
        reply = await endpoint.call({"op": "code.interrupt", "context": context})
        return _decoded(reply, Interrupted)


async def variables(sandbox: Sandbox, context: str) -> VariableList:
    """Return the variables of a context, when what runs there has ended."""
    _check_awake(sandbox, context)
    async with sandbox.use() as endpoint:
        header = {"op": "code.variables", "context": context}
        reply = await endpoint.outlast(endpoint.call(header, timeout=None))
        return _decoded(reply, VariableList)


def _decoded(reply: bytes, kind: type[ResultT]) -> ResultT:
    try:
        return msgspec.json.decode(reply, type=kind)
    except msgspec.MsgspecError as error:
        raise LinkError(f"the agent's answer is malformed ({error})") from error
