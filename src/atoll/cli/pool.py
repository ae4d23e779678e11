"""``atoll pool``: the containers an engine keeps ready."""

from typing import Annotated, Any

import typer

from atoll.cli import connection
from atoll.cli.options import AsJson, Url, print_json, print_table

app = typer.Typer(help="Containers kept ready for new sandboxes.", no_args_is_help=True)


@app.command()
def stats(*, url: Url = None, as_json: AsJson = False) -> None:
    """Show how many there are of each image and instance type."""
    connection.run(_shown("stats", url, as_json))


@app.command()
def prime(
    target: Annotated[int | None, typer.Argument(help="How many to keep ready.")] = None,
    *,
    image: Annotated[str | None, typer.Option(help="Of this image.")] = None,
    instance_type: Annotated[str | None, typer.Option(help="Of this instance type.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Fill the pool and wait for it; a target holds until the engine ends."""
    options = {"target": target, "image": image, "instance_type": instance_type}
    connection.run(_shown("prime", url, as_json, **options))


@app.command()
def shutdown(*, url: Url = None, as_json: AsJson = False) -> None:
    """Remove all that is warm; nothing is made until `prime`."""
    connection.run(_shown("shutdown", url, as_json))


async def _shown(call: str, url: str | None, as_json: bool, **options: Any) -> None:
    async with connection.environment(url) as engine:
        found = await getattr(engine.pool, call)(**options)
    if as_json:
        print_json(found.to_dict())
        return
    columns = ("Image", "Instance type", "Isolation", "Warm", "Making", "Target")
    print_table(columns, [_row(kind) for kind in found.kinds])


def _row(kind: Any) -> tuple[str, ...]:
    numbers = map(str, (kind.warm, kind.making, kind.target))
    return (kind.image, kind.instance_type, kind.isolation, *numbers)
