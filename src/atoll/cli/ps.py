"""``atoll ps``: background processes of a sandbox, their output and their end. Wakes nothing."""

import os
from typing import Annotated, Any

import typer

from atoll.cli import connection
from atoll.cli.options import AsJson, Namespace, Url, print_json, print_table
from atoll.cli.standard_streams import write
from atoll.errors import ProcessNotFoundError
from atoll.wire.inert import Inert, line

Id = Annotated[str, typer.Argument(help="Id of a sandbox.")]


def ps(
    id: Id,
    process: Annotated[str | None, typer.Argument(help="Print the output of this one.")] = None,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the process ends.")
    ] = False,
    kill: Annotated[
        str | None, typer.Option(help="End PROCESS with this signal, like TERM.")
    ] = None,
    namespace: Namespace = "Sandbox",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the background processes of a sandbox, or look at one of them."""
    if process is None:
        if follow or kill:
            raise typer.BadParameter("name the process too", param_hint="PROCESS")
        connection.run(_list(id, namespace, url, as_json))
    else:
        connection.run(_one(id, process, follow, kill, namespace, url, as_json))


async def _list(id: str, namespace: str, url: str | None, as_json: bool) -> None:
    import atoll

    async with connection.environment(url) as engine:
        found = await atoll.get_sandbox(engine.namespace(namespace), id).list_processes()
    if as_json:
        for process in found:
            print_json(process.to_dict())
        return
    columns = ("Id", "Pid", "Status", "Exit", "Started", "Command")
    print_table(columns, [_row(process) for process in found])


def _row(process: Any) -> tuple[str, ...]:
    command = process.command
    shown = command if isinstance(command, str) else " ".join(command)
    return (
        process.id,
        str(process.pid or ""),
        f"{process.status} ({process.reason})" if process.reason else str(process.status),
        "" if process.exit_code is None else str(process.exit_code),
        f"{process.start_time:%Y-%m-%d %H:%M:%S}",
        shown if len(shown) <= 60 else shown[:59] + "…",
    )


async def _one(
    id: str,
    name: str,
    follow: bool,
    kill: str | None,
    namespace: str,
    url: str | None,
    as_json: bool,
) -> None:
    import atoll

    async with connection.environment(url) as engine:
        process = await atoll.get_sandbox(engine.namespace(namespace), id).get_process(name)
        if process is None:
            raise ProcessNotFoundError(f"no process {name!r}", context={"process": name})
        if kill:
            await process.kill(kill)
        if as_json:
            print_json(process.to_dict())
        elif not kill:
            await _print(process.stream_logs(follow=follow))


async def _print(stream: Any) -> None:
    """Write both streams to our own, byte by byte as they were; inert where that is a terminal."""
    from atoll import Failed, Gap, Stderr, Stdout
    from atoll.errors import from_wire

    terminals = {target: Inert() for target in (1, 2) if os.isatty(target)}
    async with stream:
        async for event in stream:
            if isinstance(event, Stdout | Stderr):
                target = 1 if isinstance(event, Stdout) else 2
                shown = terminals.get(target)
                await write(target, shown.feed(event.data) if shown else event.data)
            elif isinstance(event, Gap):
                lost = event.to_offset - event.from_offset
                os.write(2, f"atoll: {lost} bytes are missing: {line(event.reason)}\n".encode())
            elif isinstance(event, Failed):
                raise from_wire(event.error)
    for target, shown in terminals.items():
        await write(target, shown.end())
