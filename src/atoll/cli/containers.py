"""``atoll containers``: the sandboxes of an engine. Only `exec` starts any."""

from contextlib import suppress
from typing import Annotated, Any

import typer

from atoll.cli import connection
from atoll.cli.options import AsJson, Namespace, Url, print_json, print_table
from atoll.cli.run import assignments, exit_code, follow
from atoll.errors import SandboxNotFoundError
from atoll.wire.sandbox import SandboxInfo

app = typer.Typer(help="Sandboxes of an engine.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(help="Id of a sandbox.")]


@app.command("list")
def list_sandboxes(
    *,
    state: Annotated[str | None, typer.Option(help="Only in this state, like running.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="Only with this NAME=VALUE.")] = None,
    namespace: Namespace = "Sandbox",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List sandboxes; wakes none."""
    found = connection.run(_list(namespace, url, state, assignments(label or [])))
    if as_json:
        for info in found:
            print_json(info)
        return
    columns = ("Id", "State", "Image", "Size", "Isolation", "Created")
    print_table(columns, [_row(info) for info in found])


async def _list(
    namespace: str, url: str | None, state: str | None, labels: dict[str, str]
) -> list[SandboxInfo]:
    found: list[SandboxInfo] = []
    async with connection.environment(url) as engine:
        cursor = None
        while True:
            page = await engine.namespace(namespace).list(state=state, labels=labels, cursor=cursor)
            found += page.sandboxes
            cursor = page.cursor
            if cursor is None:
                return found


def _row(info: SandboxInfo) -> tuple[str, ...]:
    created = f"{info.created_at:%Y-%m-%d %H:%M}"
    return (info.id, info.state, info.image, info.instance_type, info.isolation, created)


@app.command()
def info(
    id: Id, *, namespace: Namespace = "Sandbox", url: Url = None, as_json: AsJson = False
) -> None:
    """Show what the engine knows about a sandbox; does not wake it."""
    found = connection.run(_info(id, namespace, url))
    if as_json:
        print_json(found)
        return
    print_table(("", ""), [(name, str(value)) for name, value in found.to_dict().items()])


async def _info(id: str, namespace: str, url: str | None) -> SandboxInfo:
    import atoll

    async with connection.environment(url) as engine:
        return await atoll.get_sandbox(engine.namespace(namespace), id).info()


@app.command("exec")
def execute(
    id: Id,
    command: Annotated[list[str], typer.Argument(help="The command and its arguments.")],
    *,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE, for the command.")
    ] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", "-w", help="Working directory.")] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Name or id.")] = None,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="Run it on a terminal.")] = False,
    namespace: Namespace = "Sandbox",
    url: Url = None,
) -> None:
    """Run a command in a sandbox, waking it if it sleeps."""
    how: dict[str, Any] = {"env": assignments(env or []), "cwd": cwd, "user": user}
    work = _execute(id, command, tty, how, namespace, url)
    raise typer.Exit(exit_code(command, work))


async def _execute(
    id: str,
    command: list[str],
    tty: bool,
    how: dict[str, Any],
    namespace: str,
    url: str | None,
) -> int:
    import atoll

    async with connection.environment(url) as engine:
        sandbox = atoll.get_sandbox(engine.namespace(namespace), id)
        return await follow(sandbox, command, tty=tty, **how)


@app.command()
def delete(
    ids: Annotated[list[str], typer.Argument(help="Ids of sandboxes.")],
    *,
    namespace: Namespace = "Sandbox",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Remove sandboxes with all their files."""
    deleted = connection.run(_delete(ids, namespace, url))
    if as_json:
        print_json({"deleted": deleted})
    if missing := [id for id in ids if id not in deleted]:
        raise SandboxNotFoundError(
            f"no sandbox {', '.join(missing)} in the namespace {namespace}",
            context={"ids": missing, "namespace": namespace},
            suggestion="`atoll containers list` lists them",
        )


async def _delete(ids: list[str], namespace: str, url: str | None) -> list[str]:
    """Delete and return those that are there: to destroy one that is not is no error."""
    import atoll

    deleted = []
    async with connection.environment(url) as engine:
        for sandbox in [atoll.get_sandbox(engine.namespace(namespace), id) for id in ids]:
            with suppress(SandboxNotFoundError):
                await sandbox.info()
                await sandbox.destroy()
                deleted.append(sandbox.id)
    return deleted
