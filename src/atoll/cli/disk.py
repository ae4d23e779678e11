"""``atoll disk``: what the sandboxes of a namespace and what is kept of them takes."""

from typing import Annotated

import typer

from atoll.cli import connection
from atoll.cli.options import AsJson, Namespace, Url, print_json, print_table
from atoll.wire.disk import DiskUsage


def disk(
    *,
    limit: Annotated[int, typer.Option(help="How many to show, the largest first.")] = 20,
    namespace: Namespace = "Sandbox",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show what sandboxes, snapshots, backups and volumes of a namespace take.

    What several have in common, as a snapshot and its sandbox do, counts for each.
    """

    async def work() -> DiskUsage:
        async with connection.environment(url) as engine:
            usage: DiskUsage = await engine.disk(namespace=namespace, limit=limit)
            return usage

    told = connection.run(work())
    if as_json:
        print_json(told)
        return
    rows = [(e.kind, e.id, str(e.size), str(e.limit or ""), str(e.expires_at or "")) for e in told]
    print_table(("Kind", "Id", "Bytes", "Limit", "Until"), rows)
    for kind, size in told.sizes.items():
        print(f"{told.counts[kind]} {kind}(s): {size:,} bytes")
