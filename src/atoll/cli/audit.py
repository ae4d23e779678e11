"""``atoll audit``: who changed what, and when."""

from typing import Annotated

import typer

from atoll.cli import connection
from atoll.cli.options import AsJson, Url, print_json, print_table
from atoll.wire.keys import AuditRecord

PAGE = 1_000


def audit(
    *,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only calls for this one.")
    ] = None,
    caller: Annotated[
        str | None, typer.Option(help="Only this key's id, settings, or owner.")
    ] = None,
    operation: Annotated[str | None, typer.Option(help="Only this one, like exec.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="Most records.")] = 100,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show records of mutating calls, newest first."""
    found = connection.run(_audit(url, namespace, caller, operation, limit))
    if as_json:
        for record in found:
            print_json(record)
        return
    columns = ("When", "Who", "What", "Of", "Answer", "Request")
    print_table(columns, [_row(record) for record in found])


async def _audit(
    url: str | None, namespace: str | None, caller: str | None, operation: str | None, limit: int
) -> list[AuditRecord]:
    found: list[AuditRecord] = []
    async with connection.environment(url) as engine:
        before = None
        while len(found) < limit:
            page = await engine.audit(
                namespace=namespace,
                caller=caller,
                operation=operation,
                before=before,
                limit=min(PAGE, limit - len(found)),
            )
            found += page.records
            before = page.cursor
            if before is None:
                break
    return found


def _row(record: AuditRecord) -> tuple[str, ...]:
    answer = f"{record.status} {record.code or ''}".strip() if record.status else "caller left"
    target = "/".join(record.target.values())
    when = f"{record.at:%Y-%m-%d %H:%M:%S}"
    return (when, record.caller, record.operation, target, answer, record.request_id)
