"""``atoll image``: the images of this host.

These verbs work on the store itself, not through an engine: images are shared by all engines of
a host, and the base image has to be there before the first one starts.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from atoll.cli.options import print_table
from atoll.images.layout import Image
from atoll.images.steps import Progress
from atoll.images.store import ImageStore
from atoll.load_settings import load
from atoll.wire.sandbox import ImageInfo

app = typer.Typer(help="Images of this host.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


@app.command("build-base")
def build_base(
    *,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Build it anyway, with today's packages.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Build the base image, atoll/base, once."""
    _make(lambda store, progress: store.build_base(progress, refresh=refresh), as_json)


@app.command()
def build(
    folder: Annotated[Path, typer.Argument(help="Folder with the Dockerfile.")] = Path(),
    *,
    tag: Annotated[str, typer.Option("--tag", "-t", help="Name to store it under.")],
    file: Annotated[str, typer.Option("--file", "-f", help="Path in the folder.")] = "Dockerfile",
    build_arg: Annotated[list[str] | None, typer.Option(help="NAME=VALUE of an ARG line.")] = None,
    as_json: AsJson = False,
) -> None:
    """Build a Dockerfile."""
    arguments = dict(_assignment(text) for text in build_arg or [])
    _make(
        lambda store, progress: store.build(
            folder, file, tag=tag, build_args=arguments, progress=progress
        ),
        as_json,
    )


@app.command()
def pull(
    image: Annotated[str, typer.Argument(help="Reference, for example python:3.12-slim.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Get an image from its registry."""
    _make(lambda store, progress: store.pull(image, progress), as_json)


@app.command("list")
def list_images(*, as_json: AsJson = False) -> None:
    """List the stored images; a shared layer counts for the oldest image that has it."""
    infos = asyncio.run(_store().list())
    if as_json:
        for info in infos:
            _print(info.to_dict())
        return
    columns = ("Reference", "Digest", "Own size", "Stored")
    print_table(columns, [_row(info) for info in infos])


def _row(info: ImageInfo) -> tuple[str, str, str, str]:
    size = f"{info.size / 10**6:,.1f} MB"
    return info.reference, info.digest[7:19], size, f"{info.created_at:%Y-%m-%d %H:%M}"


@app.command()
def remove(
    image: Annotated[str, typer.Argument(help="Reference of a stored image.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Remove an image that no sandbox needs."""
    asyncio.run(_store().remove(image, _progress(as_json)))


@app.command()
def prune(
    *,
    build_cache: Annotated[
        bool, typer.Option("--build-cache", help="Also forget cached build steps.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove images and layers that no name and no sandbox needs."""
    removed = asyncio.run(_store().prune(_progress(as_json), build_cache=build_cache))
    if as_json:
        _print({"removed": removed})
    else:
        print(f"{removed} image(s) removed")


def _make(work: Callable[[ImageStore, Progress], Awaitable[Image]], as_json: bool) -> None:
    async def run() -> Image:
        return await work(_store(), _progress(as_json))

    image = asyncio.run(run())
    if as_json:
        _print({"reference": image.reference, "digest": image.digest})
    else:
        print(f"{image.reference} {image.digest}")


def _store() -> ImageStore:
    settings = load().settings
    return ImageStore(settings.storage, settings.images)


def _progress(as_json: bool) -> Progress:
    if as_json:
        return lambda line: _print({"message": line})
    from rich.console import Console

    # What builds print is foreign: no markup, and control characters are shown, not obeyed.
    console = Console(stderr=True, markup=False, highlight=False)
    return lambda line: console.print(_visible(line), soft_wrap=True)


def _visible(line: str) -> str:
    return "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in line)


def _assignment(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier():
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value


def _print(data: dict[str, Any]) -> None:
    print(json.dumps(data, default=str), flush=True)
