"""``atoll cp``: files and folders between this host and a sandbox."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, Self

import typer

from atoll.cli import connection
from atoll.cli.options import AsJson, Namespace, Url, print_json

if TYPE_CHECKING:
    import atoll


class Place(NamedTuple):
    """A path, in a sandbox or (no id) here."""

    id: str | None
    path: str


def parse(text: str) -> Place:
    """Return what ``ID:PATH`` or a path means; one of ours with a colon is written ``./a:b``."""
    id, colon, path = text.partition(":")
    if colon and id and "/" not in id:
        return Place(id, path or ".")
    return Place(None, text)


def cp(
    source: Annotated[str, typer.Argument(help="A path here, or ID:PATH.")],
    target: Annotated[str, typer.Argument(help="A path here, or ID:PATH.")],
    *,
    namespace: Namespace = "Sandbox",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Copy a file or a folder into a sandbox or out of it, streamed, of any size."""
    start, end = parse(source), parse(target)
    if start.id and end.id:
        raise typer.BadParameter(
            "both are in sandboxes; copy to this host first (a path here with a colon: ./a:b)"
        )
    if start.id is None and end.id is None:
        raise typer.BadParameter("one of the two must be in a sandbox, like my-sandbox:/workspace")
    connection.run(_copy(start, end, namespace, url, as_json, Path(start.path).is_dir()))


async def _copy(
    start: Place, end: Place, namespace: str, url: str | None, as_json: bool, folder: bool
) -> None:
    import atoll

    with _Progress(as_json) as progress:
        async with connection.environment(url) as engine:
            id = start.id or end.id or ""
            sandbox = atoll.get_sandbox(engine.namespace(namespace), id)
            if end.id:
                target = end.path if folder else await _remote(sandbox, start.path, end.path)
                await sandbox.upload(start.path, target, progress=progress)
            else:
                target = str(_into(end.path, start.path))
                await sandbox.download(start.path, target, progress=progress)
    if as_json:
        print_json({"source": start.path, "target": target, "bytes": progress.count})


async def _remote(sandbox: "atoll.Sandbox", source: str, target: str) -> str:
    """Return where an upload goes: a file into a folder that exists, under its own name."""
    from atoll.errors import FileNotFoundError

    with suppress(FileNotFoundError):
        if target.endswith("/") or (await sandbox.stat(target)).type == "directory":
            return f"{target.rstrip('/')}/{Path(source).name}"
    return target


def _into(target: str, source: str) -> Path:
    """Return where a download goes: into a folder that exists, under the source's name."""
    path = Path(target)
    return path / Path(source).name if path.is_dir() else path


class _Progress:
    """A line on the terminal that counts bytes."""

    def __init__(self, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import DownloadColumn, Progress, SpinnerColumn, TransferSpeedColumn

        self.count = 0
        console = Console(stderr=True)
        self._bar = Progress(
            SpinnerColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def __call__(self, count: int) -> None:
        self.count = count
        self._bar.update(self._task, completed=count)
