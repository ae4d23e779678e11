"""``atoll secret``: values that sandboxes use and never see."""

import sys
from typing import Annotated

import typer

from atoll.cli import connection
from atoll.cli.options import AsJson, Namespace, Url, print_json, print_table
from atoll.wire.secrets import SecretInfo

app = typer.Typer(help="Values that sandboxes use and never see.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the secret.")]


@app.command()
def put(
    name: Name,
    *,
    host: Annotated[
        list[str] | None, typer.Option(help="Only hosts like this may be given it; repeatable.")
    ] = None,
    namespace: Namespace = "Sandbox",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Keep a value, read from standard input; one newline at its end is not part of it."""
    value = _read()

    async def work() -> SecretInfo:
        async with connection.environment(url) as engine:
            kept: SecretInfo = await engine.namespace(namespace).secrets.put(
                name, value, hosts=host or []
            )
            return kept

    kept = connection.run(work())
    if as_json:
        print_json(kept)


def _read() -> str:
    if sys.stdin.isatty():
        value: str = typer.prompt("Value", hide_input=True, err=True)
        return value
    return sys.stdin.read().removesuffix("\n")


@app.command("list")
def list_secrets(
    *, namespace: Namespace = "Sandbox", url: Url = None, as_json: AsJson = False
) -> None:
    """List names; values are shown nowhere."""

    async def work() -> list[SecretInfo]:
        async with connection.environment(url) as engine:
            found: list[SecretInfo] = await engine.namespace(namespace).secrets.list()
            return found

    found = connection.run(work())
    if as_json:
        for secret in found:
            print_json(secret)
        return
    rows = [(s.name, ", ".join(s.hosts) or "any", f"{s.updated_at:%Y-%m-%d %H:%M}") for s in found]
    print_table(("Name", "Hosts", "Updated"), rows)


@app.command()
def delete(
    name: Name, *, namespace: Namespace = "Sandbox", url: Url = None, as_json: AsJson = False
) -> None:
    """Forget a value: what needs it is refused from now on."""

    async def work() -> None:
        async with connection.environment(url) as engine:
            await engine.namespace(namespace).secrets.delete(name)

    connection.run(work())
    if as_json:
        print_json({"deleted": name})
