"""Runs a git clone as a command of the sandbox: with its limits, ended as a whole tree."""

import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from atoll.engine.commands import calls, git
from atoll.engine.link.link import LinkError, error_of
from atoll.engine.sandbox import Sandbox
from atoll.errors import (
    CommandNotFoundError,
    GitOperationFailedError,
    OperationInterruptedError,
    SandboxError,
)
from atoll.wire import frames
from atoll.wire.frames import Kind
from atoll.wire.git import GitCheckout, GitCheckoutRequest
from atoll.wire.process import ExecRequest
from atoll.wire.records import Exit

_KEPT = 64 << 10
"""Bytes of each stream that are looked at."""


class _Ended(NamedTuple):
    exit: Exit
    stdout: str
    stderr: str


async def checkout(sandbox: Sandbox, request: GitCheckoutRequest, operation: str) -> GitCheckout:
    """Clone a repository; who leaves meanwhile ends it.

    Args:
        operation: id of the clone as a command; the same id joins the clone that runs.

    Raises:
        SandboxError: a git error by its cause, `TimeoutError`, or one about the request.
    """
    clone = git.plan(request)
    limit = request.clone_timeout_ms
    try:
        done = await _run(sandbox, _command(clone, clone.argv, request, limit), operation, clone)
    except CommandNotFoundError as error:
        raise git.no_git(clone) from error
    if done.exit.timed_out:
        raise git.timed_out(clone, (limit or 0) / 1000)
    if done.exit.cancelled:
        raise OperationInterruptedError("the clone was cancelled", context={"url": clone.url})
    if done.exit.exit_code:
        raise git.failure(clone, done.exit.exit_code, done.stderr)
    path, commit, branch = await _inspect(sandbox, clone, request)
    return GitCheckout(
        url=clone.url, path=path, branch=branch, commit=commit, timestamp=datetime.now(UTC)
    )


async def _inspect(
    sandbox: Sandbox, clone: git.Clone, request: GitCheckoutRequest
) -> tuple[str, str | None, str | None]:
    command = _command(clone, clone.inspect, request, 60_000)
    told = await _run(sandbox, command, secrets.token_hex(16), clone)
    if not told.stdout:
        raise GitOperationFailedError(
            git.scrub(told.stderr.strip(), clone.secrets), context={"path": clone.target}
        )
    return git.read_inspection(clone, told.exit.exit_code, told.stdout)


def _command(
    clone: git.Clone, argv: list[str], request: GitCheckoutRequest, limit: int | None
) -> ExecRequest:
    return ExecRequest(
        command=argv,
        timeout_ms=limit,
        env=clone.env,
        session=request.session,
        shell_state=False,
        stdin=bool(clone.stdin) and argv is clone.argv,
        buffered=True,
    )


async def _run(sandbox: Sandbox, request: ExecRequest, operation: str, clone: git.Clone) -> _Ended:
    kept = {Kind.STDOUT: bytearray(), Kind.STDERR: bytearray()}
    stdin = _once(clone.stdin) if request.stdin else None
    async with calls.exec(
        sandbox, request, operation, cancel_on_drop=True, stdin=stdin
    ) as received:
        async for frame in received:
            if frame.kind in kept:
                tail = kept[Kind(frame.kind)]
                tail += frames.decode_output(frame.payload).data
                del tail[:-_KEPT]
            elif frame.kind == Kind.ERROR:
                raise _without(error_of(frame), clone)
            elif frame.kind == Kind.EXITED:
                end = msgspec.json.decode(frame.payload, type=Exit)
                return _Ended(
                    end, *(bytes(tail).decode(errors="replace") for tail in kept.values())
                )
    raise LinkError("a command without an end")


def _without(error: SandboxError, clone: git.Clone) -> SandboxError:
    error.message = git.scrub(error.message, clone.secrets)
    return error


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
