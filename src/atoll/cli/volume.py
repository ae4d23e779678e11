"""``atoll volume``: named volumes and their files, without any sandbox."""

import sys
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from atoll.cli import connection
from atoll.cli.options import AsJson, Namespace, Url, print_json, print_table
from atoll.wire.volumes import VolumeFile, VolumeInfo

app = typer.Typer(help="Named volumes and their files.", no_args_is_help=True)

T = TypeVar("T")

Name = Annotated[str, typer.Argument(help="Name of the volume.")]
Inside = Annotated[str, typer.Argument(help="Path in the volume.")]


@app.command()
def create(
    name: Name,
    *,
    size: Annotated[str, typer.Option(help="What it may hold, like 500MB.")] = "1GB",
    read_only: Annotated[bool, typer.Option("--read-only", help="Sandboxes only read.")] = False,
    shared: Annotated[bool, typer.Option("--shared", help="Several may write at once.")] = False,
    private: Annotated[
        bool, typer.Option("--private", help="Each writes to a copy of its own.")
    ] = False,
    namespace: Namespace = "Sandbox",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a volume; the same one again is no error."""

    async def work(engine: Any) -> VolumeInfo:
        volume = await engine.volumes.create(
            name,
            size=size,
            read_only=read_only,
            shared=shared,
            private=private,
            namespace=namespace,
        )
        info: VolumeInfo = await volume.info()
        return info

    _print(_asked(url, work), as_json)


@app.command("list")
def list_volumes(
    *, namespace: Namespace = "Sandbox", url: Url = None, as_json: AsJson = False
) -> None:
    """List the volumes of a namespace."""

    async def work(engine: Any) -> list[VolumeInfo]:
        found: list[VolumeInfo] = []
        cursor: str | None = None
        while True:
            page = await engine.volumes.list(namespace=namespace, cursor=cursor, limit=1_000)
            found += page
            if (cursor := page.cursor) is None:
                return found

    _print(_asked(url, work), as_json)


@app.command()
def info(
    name: Name, *, namespace: Namespace = "Sandbox", url: Url = None, as_json: AsJson = False
) -> None:
    """Show what a volume has and who uses it."""
    _print(_on(name, namespace, url, lambda volume: volume.info()), as_json)


@app.command()
def resize(
    name: Name,
    size: Annotated[str, typer.Argument(help="What it may hold, like 500MB.")],
    *,
    namespace: Namespace = "Sandbox",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Give a volume another limit; a smaller one only when what it has fits."""
    _print(_on(name, namespace, url, lambda volume: volume.resize(size)), as_json)


@app.command()
def delete(
    name: Name, *, namespace: Namespace = "Sandbox", url: Url = None, as_json: AsJson = False
) -> None:
    """Delete a volume with all its files."""
    _asked(url, lambda engine: engine.volumes.delete(name, namespace=namespace))
    _done(as_json, deleted=name)


@app.command()
def ls(
    name: Name,
    path: Inside = "",
    *,
    namespace: Namespace = "Sandbox",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List a folder of a volume."""

    async def work(volume: Any) -> list[VolumeFile]:
        found: list[VolumeFile] = []
        cursor: str | None = None
        while True:
            page = await volume.list(path, cursor=cursor)
            found += page
            if (cursor := page.cursor) is None:
                return found

    files = _on(name, namespace, url, work)
    if as_json:
        for file in files:
            print_json(file)
        return
    rows = [(f.type, f"{f.mode:o}", str(f.size), _shown(f.path)) for f in files]
    print_table(("Type", "Mode", "Bytes", "Path"), rows)


@app.command()
def get(
    name: Name,
    path: Inside,
    target: Annotated[Path | None, typer.Argument(help="Where to; default: stdout.")] = None,
    *,
    namespace: Namespace = "Sandbox",
    url: Url = None,
) -> None:
    """Read a file of a volume."""

    async def work(volume: Any) -> None:
        with target.open("wb") if target else nullcontext(sys.stdout.buffer) as out:
            async for piece in volume.read_stream(path):
                out.write(piece)

    _on(name, namespace, url, work)


@app.command()
def put(
    name: Name,
    source: Annotated[Path, typer.Argument(help="A file here, or - for stdin.")],
    path: Inside,
    *,
    namespace: Namespace = "Sandbox",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Write a file of a volume; folders are made."""

    async def work(volume: Any) -> Any:
        opened = nullcontext(sys.stdin.buffer) if str(source) == "-" else source.open("rb")
        with opened as content:
            return await volume.write(path, content)

    written = _on(name, namespace, url, work)
    _done(as_json, path=written.path, size=written.size, sha256=written.sha256)


@app.command()
def mkdir(
    name: Name,
    path: Inside,
    *,
    namespace: Namespace = "Sandbox",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a folder, and those on the way."""
    _on(name, namespace, url, lambda volume: volume.make_dir(path))
    _done(as_json, path=path)


@app.command()
def mv(
    name: Name,
    path: Inside,
    target: Inside,
    *,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file.")] = False,
    namespace: Namespace = "Sandbox",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Give a file or folder another path."""
    _on(name, namespace, url, lambda volume: volume.rename(path, target, overwrite=overwrite))
    _done(as_json, path=target)


@app.command()
def rm(
    name: Name,
    path: Inside,
    *,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="A folder with all in it.")
    ] = False,
    namespace: Namespace = "Sandbox",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Remove a file or folder."""
    _on(name, namespace, url, lambda volume: volume.remove(path, recursive=recursive))
    _done(as_json, removed=path)


def _asked(url: str | None, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        async with connection.environment(url) as engine:
            return await work(engine)

    return connection.run(run())


def _on(
    name: str, namespace: str, url: str | None, work: Callable[[Any], Coroutine[Any, Any, T]]
) -> T:
    async def run(engine: Any) -> T:
        return await work(await engine.volumes.get(name, namespace=namespace))

    return _asked(url, run)


def _print(told: VolumeInfo | list[VolumeInfo], as_json: bool) -> None:
    infos = told if isinstance(told, list) else [told]
    if as_json:
        for info in infos:
            print_json(info)
        return
    rows = [(i.name, str(i.size), str(i.used), _kind(i), ", ".join(i.sandboxes)) for i in infos]
    print_table(("Name", "Limit", "Bytes", "Kind", "Used by"), rows)


def _kind(info: VolumeInfo) -> str:
    words = {"read-only": info.read_only, "shared": info.shared, "private": info.private}
    return next((word for word, holds in words.items() if holds), "one at a time")


def _shown(path: str) -> str:
    """Return a name as text: it is a stranger's, and the terminal obeys control characters."""
    return path if path.isprintable() else repr(path)[1:-1]


def _done(as_json: bool, **told: Any) -> None:
    if as_json:
        print_json(told)
