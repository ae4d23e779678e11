"""``atoll keys``: who may call an engine from elsewhere."""

import sys
from typing import Annotated

import typer

from atoll.cli import connection
from atoll.cli.options import AsJson, Url, print_json, print_table
from atoll.wire.keys import CreatedKey, KeyInfo

app = typer.Typer(help="API keys of an engine.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="For people: whose it is.")],
    *,
    scope: Annotated[str, typer.Option(help="read, run or admin.")] = "run",
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="The only one it is for.")
    ] = None,
    expires: Annotated[str | None, typer.Option(help="Like 12h or 30d; default: never.")] = None,
    rate: Annotated[float | None, typer.Option(help="Requests a second.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Requests at once.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it: nobody can print it again."""

    async def work() -> CreatedKey:
        async with connection.environment(url) as engine:
            made: CreatedKey = await engine.keys.create(
                name,
                scope=scope,
                namespace=namespace,
                expires_in=expires,
                rate=rate,
                concurrency=concurrency,
            )
            return made

    made = connection.run(work())
    if as_json:
        print_json(made)
        return
    print(made.key)
    print(f"id {made.info.id}; it is shown only now", file=sys.stderr)


@app.command("list")
def list_keys(*, url: Url = None, as_json: AsJson = False) -> None:
    """List keys; their texts are nowhere."""

    async def work() -> list[KeyInfo]:
        async with connection.environment(url) as engine:
            found: list[KeyInfo] = await engine.keys.list()
            return found

    found = connection.run(work())
    if as_json:
        for key in found:
            print_json(key)
        return
    columns = ("Id", "Name", "Scope", "Namespace", "Created", "Expires")
    print_table(columns, [_row(key) for key in found])


def _row(key: KeyInfo) -> tuple[str, ...]:
    expires = f"{key.expires_at:%Y-%m-%d %H:%M}" if key.expires_at else "never"
    created = f"{key.created_at:%Y-%m-%d %H:%M}"
    return (key.id, key.name, key.scope, key.namespace or "all", created, expires)


@app.command()
def revoke(
    ids: Annotated[list[str], typer.Argument(help="Ids of keys.")],
    *,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Refuse keys from now on, and end what they have under way."""

    async def work() -> None:
        async with connection.environment(url) as engine:
            for id in ids:
                await engine.keys.revoke(id)

    connection.run(work())
    if as_json:
        print_json({"revoked": ids})
