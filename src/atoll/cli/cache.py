"""``atoll cache``: what pip, npm and uv of sandboxes find without downloading it."""

from typing import Annotated

import typer

from atoll.cli import connection
from atoll.cli.options import AsJson, Namespace, Url, print_json
from atoll.wire.volumes import VolumeInfo

app = typer.Typer(help="Package caches that sandboxes begin with.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep ``fill`` a verb of its own: a group of one would have none."""


@app.command()
def fill(
    name: Annotated[str, typer.Argument(help="Name of the cache, a private volume.")],
    *,
    pip: Annotated[list[str] | None, typer.Option(help="A requirement, again for more.")] = None,
    npm: Annotated[list[str] | None, typer.Option(help="A package spec.")] = None,
    uv: Annotated[list[str] | None, typer.Option(help="A requirement, for uv.")] = None,
    size: Annotated[str, typer.Option(help="Limit of a new cache.")] = "2GB",
    image: Annotated[str | None, typer.Option(help="Image whose tools download.")] = None,
    namespace: Namespace = "Sandbox",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Download packages into a cache, in a fresh sandbox; it is made when there is none.

    Sandboxes with the option package_cache have them from their next start on, each in a copy of
    its own.
    """

    async def work() -> VolumeInfo:
        async with connection.environment(url) as engine:
            filled: VolumeInfo = await engine.package_caches.fill(
                name,
                pip=pip or (),
                npm=npm or (),
                uv=uv or (),
                size=size,
                image=image,
                namespace=namespace,
            )
            return filled

    told = connection.run(work())
    if as_json:
        print_json(told)
    else:
        print(f"{told.name}: {told.used:,} of {told.size:,} bytes")
