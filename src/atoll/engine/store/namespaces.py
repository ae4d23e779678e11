"""Which namespaces there are: those that have something in the store."""

from atoll.engine.store.database import Database
from atoll.wire.namespaces import NamespaceInfo, NamespacePage, NamespaceQuery

_SELECT = """
    SELECT name,
        (SELECT count(*) FROM sandboxes WHERE namespace = name AND state != 'destroyed'),
        (SELECT count(*) FROM sandboxes WHERE namespace = name AND state = 'running'),
        EXISTS (SELECT 1 FROM namespaces AS own WHERE own.name = found.name)
    FROM (
        SELECT namespace AS name FROM sandboxes WHERE state != 'destroyed'
        UNION SELECT name FROM namespaces
        UNION SELECT namespace FROM snapshots
        UNION SELECT namespace FROM backups
        UNION SELECT namespace FROM volumes
    ) AS found
    WHERE name > ? ORDER BY name LIMIT ?
"""


async def page(database: Database, wanted: NamespaceQuery) -> NamespacePage:
    """Return one page of the namespaces."""
    rows = await database.read(_SELECT, (wanted.cursor or "", wanted.limit + 1))
    found = [
        NamespaceInfo(name=name, sandboxes=all, running=running, configured=bool(configured))
        for name, all, running, configured in rows[: wanted.limit]
    ]
    more = len(rows) > wanted.limit
    return NamespacePage(namespaces=found, cursor=found[-1].name if more else None)
