"""``atoll run``: one sandbox, one command. Output comes live, the exit code is the command's."""

import asyncio
import secrets
import shlex
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated, Any

import typer

from atoll.cli import connection, standard_streams
from atoll.cli.options import AsJson, Namespace, Url, print_json
from atoll.errors import (
    CommandNotFoundError,
    SandboxError,
    TimeoutError,
    ValidationFailedError,
)
from atoll.wire.base import to_ms


def run(
    command: Annotated[list[str], typer.Argument(help="The command and its arguments.")],
    *,
    id: Annotated[
        str | None, typer.Option("--id", help="Use this sandbox and keep it; default: a new one.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="Image of a new sandbox.")] = None,
    instance_type: Annotated[str | None, typer.Option(help="Size, like lite or basic.")] = None,
    runtime: Annotated[str | None, typer.Option(help="Isolation level.")] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE, for the command.")
    ] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", "-w", help="Working directory.")] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Name or id.")] = None,
    timeout: Annotated[str | None, typer.Option(help="Like 30s or 5m; default: none.")] = None,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="Run it on a terminal.")] = False,
    namespace: Namespace = "Sandbox",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Run a command in a sandbox, which is destroyed afterwards unless it was named by --id.

    Write the command after ``--``. It is run without a shell; for a script use
    ``atoll run -- sh -c "…"``.
    """
    _check_duration("--timeout", timeout)
    options = {"image": image, "instance_type": instance_type, "runtime": runtime}
    how = {"env": assignments(env or []), "cwd": cwd, "user": user, "timeout": timeout}
    work = _run(command, id, options, how, tty, namespace, url, as_json)
    raise typer.Exit(exit_code(command, work))


def _check_duration(option: str, text: str | None) -> None:
    try:
        to_ms(0 if text is None else text)
    except ValueError as error:
        raise ValidationFailedError(f"{option}: {error}", context={"field": option}) from error


def exit_code(command: list[str], work: Coroutine[Any, Any, int]) -> int:
    """Run the verb that runs *command*, and return the exit code.

    Raises:
        CommandNotFoundError: with a hint where a whole script was given for the program's name.
    """
    try:
        return connection.run(work)
    except CommandNotFoundError as error:
        if len(command) == 1 and any(letter.isspace() for letter in command[0]):
            script = shlex.quote(command[0])
            error.suggestion = f"commands are run without a shell; for one write: sh -c {script}"
        raise


def assignments(texts: list[str]) -> dict[str, str]:
    """Return what NAME=VALUE texts say."""
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not name or not sign:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE")
        found[name] = value
    return found


async def _run(
    command: list[str],
    id: str | None,
    options: dict[str, Any],
    how: dict[str, Any],
    tty: bool,
    namespace: str,
    url: str | None,
    as_json: bool,
) -> int:
    import atoll

    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(connection.environment(url))
        name = id if id is not None else f"run-{secrets.token_hex(6)}"
        sandbox = atoll.get_sandbox(engine.namespace(namespace), name, **options)
        if id is None:
            stack.push_async_exit(partial(_destroy, sandbox))
        if as_json:
            stdin = None if sys.stdin.isatty() else sys.stdin.buffer
            result = await sandbox.exec(command, stdin=stdin, **how)
            print_json(result.to_dict())
            return int(result.exit_code)
        return await follow(sandbox, command, tty=tty, **how)


async def follow(sandbox: Any, command: list[str], *, tty: bool, **how: Any) -> int:
    """Run a command with our own standard streams and return its exit code."""
    size = standard_streams.terminal_size()
    process = await sandbox.spawn(command, pty=tty, cols=size.columns, rows=size.lines, **how)
    async with process, asyncio.TaskGroup() as group:
        with standard_streams.raw_terminal(tty, process.resize, group):
            feeding = group.create_task(standard_streams.feed(process.stdin))
            outputs = [
                group.create_task(standard_streams.copy(process.stdout, 1, raw=tty)),
                group.create_task(standard_streams.copy(process.stderr, 2, raw=tty)),
            ]
            await asyncio.wait(outputs)
            exited = await process.wait()
            feeding.cancel()
    if exited.timed_out:
        raise TimeoutError(
            f"the command was ended after {exited.duration:.3g} s",
            context={"duration": exited.duration, "signal": exited.signal},
            suggestion="give it more with --timeout",
        )
    return int(exited.exit_code)


async def _destroy(sandbox: Any, _: object, failure: BaseException | None, __: object) -> None:
    """Remove the sandbox of a verb that ended with *failure*, or well."""
    try:
        await asyncio.shield(sandbox.destroy())
    except SandboxError as error:
        if isinstance(failure, SandboxError) and failure.wire_code == error.wire_code:
            return  # the same trouble, which is told already, and nothing was made
        print(f"atoll: the sandbox {sandbox.id} was not destroyed: {error}", file=sys.stderr)
