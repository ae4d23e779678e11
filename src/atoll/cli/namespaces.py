"""``atoll namespaces``: whose sandboxes an engine has. For its administrators."""

from atoll.cli import connection
from atoll.cli.options import AsJson, Url, print_json, print_table
from atoll.wire.namespaces import NamespaceInfo

PAGE = 1_000


def namespaces(*, url: Url = None, as_json: AsJson = False) -> None:
    """List the namespaces that have sandboxes, or anything else."""
    found = connection.run(_all(url))
    if as_json:
        for namespace in found:
            print_json(namespace)
        return
    print_table(("Name", "Sandboxes", "Running"), [_row(namespace) for namespace in found])


async def _all(url: str | None) -> list[NamespaceInfo]:
    found: list[NamespaceInfo] = []
    async with connection.environment(url) as engine:
        page = await engine.namespaces(limit=PAGE)
        found += page
        while page.cursor is not None:
            page = await engine.namespaces(cursor=page.cursor, limit=PAGE)
            found += page
    return found


def _row(namespace: NamespaceInfo) -> tuple[str, ...]:
    return (namespace.name, str(namespace.sandboxes), str(namespace.running))
