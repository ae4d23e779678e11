"""``atoll dev``: serve a Worker project and reload it on change."""

import asyncio
import contextlib
import json
import signal
from pathlib import Path
from typing import Annotated, Any

import typer


def dev(
    project: Annotated[Path, typer.Argument(help="The project's folder.")] = Path(),
    *,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="TCP port; 0 takes a free one.")
    ] = None,
    env: Annotated[str | None, typer.Option(help='A key of "env" in the configuration.')] = None,
    url: Annotated[
        str | None, typer.Option(help="A running engine instead of a private one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Serve a Worker project; build its image first, reload it when a file changes."""
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(_dev(project.resolve(), port, env, url, as_json))


async def _dev(
    project: Path, port: int | None, env: str | None, url: str | None, as_json: bool
) -> None:
    import atoll
    from atoll.workers import dev as worker_dev

    if this := asyncio.current_task():
        # SIGINT too: a script's background job inherits it ignored.
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, this.cancel)

    def say(line: str) -> None:
        _print({"message": line}, line, as_json)

    def ready(what: worker_dev.Ready) -> None:
        _print(what.to_dict(), f"{what.name} is ready at {what.url}", as_json)

    async with atoll.connect(url) if url else atoll.local() as engine:
        await worker_dev.serve(engine, project, say=say, ready=ready, environment=env, port=port)


def _print(data: dict[str, Any], text: str, as_json: bool) -> None:
    print(json.dumps(data) if as_json else text, flush=True)
