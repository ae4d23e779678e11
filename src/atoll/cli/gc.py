"""``atoll gc``: what on the engine's disk nobody needs, and removing it."""

from typing import Annotated

import typer

from atoll.cli import connection
from atoll.cli.options import AsJson, Url, print_json, print_table


def gc(
    *,
    apply: Annotated[
        bool,
        typer.Option("--apply/--dry-run", help="Remove it and shrink the store, or only tell."),
    ] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show what the engine would collect: ended snapshots and backups, and what nobody owns."""
    connection.run(_collect(url, apply=apply, as_json=as_json))


async def _collect(url: str | None, *, apply: bool, as_json: bool) -> None:
    async with connection.environment(url) as engine:
        found = await engine.gc(dry_run=not apply)
    if as_json:
        print_json(found)
        return
    columns = ("Kind", "Id", "Namespace", "Reason", "Bytes")
    rows = [(i.kind, i.id, i.namespace or "", i.reason, str(i.size)) for i in found]
    print_table(columns, rows)
    print(f"{len(rows)} {'removed' if apply else 'would be removed (--apply does it)'}")
    if found.store:
        print(
            f"store: {found.store.taken:,} bytes on the disk, {found.store.used:,} in use", end=""
        )
        print(f"; shrunk by {found.shrunk:,}" if apply else "")
