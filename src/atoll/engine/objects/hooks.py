"""Telling Workers what happened to their sandboxes: hooks, and the end of a life.

One task an id settles what is due, one thing after the other. Where no Worker is there it gives
up; the next one that attaches begins it again. A hook that raises or takes too long counts as told
and is reported to `on_error`: it must not come again for ever, nor keep anything from working.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import structlog

from atoll.engine.objects import origin
from atoll.engine.objects.deliveries import Deliveries, LostError
from atoll.engine.objects.due import Due, due
from atoll.engine.objects.registry import Registry
from atoll.engine.objects.table import Key, Row, Table
from atoll.errors import SandboxError, WorkerUnavailableError
from atoll.host.tasks import Tasks
from atoll.wire.objects import Delivery

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox
    from atoll.engine.store.record import Record

log = structlog.get_logger(__name__)


class Hooks:
    """Hooks of all objects.

    Args:
        table: what was told.
        registry: which hooks a class has.
        deliveries: the way to Workers.
        lookup: returns the sandbox of a namespace and id.
        timeout: seconds a hook may take.
    """

    def __init__(
        self,
        table: Table,
        registry: Registry,
        deliveries: Deliveries,
        lookup: "Callable[[str, str], Sandbox]",
        timeout: float,
    ) -> None:
        self._table = table
        self._registry = registry
        self._deliveries = deliveries
        self._lookup = lookup
        self._timeout = timeout
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        self._tasks = Tasks()
        self._closed = False

    async def close(self) -> None:
        """Tell nothing more; what is due stays due."""
        self._closed = True
        await self._tasks.close()

    def has(self, namespace: str, hook: str) -> bool:
        """Whether the class of *namespace* has *hook*."""
        known = self._registry.known(namespace)
        return known is not None and hook in known.cls.hooks

    def notify(self, keys: Iterable[Key]) -> None:
        """Tell what is due of *keys*, soon."""
        for key in keys:
            self._spawn(self.settle(key))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self._closed:
            work.close()
            return
        self._tasks.begin(work)

    async def settle(self, key: Key) -> None:
        """Tell everything that is due of *key*; return when it was told, or nobody is there."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            try:
                await self._settle(key)
            except (WorkerUnavailableError, LostError):
                log.debug("nobody to tell", namespace=key[0], sandbox=key[1])
            except SandboxError as error:
                log.warning("hooks failed", namespace=key[0], sandbox=key[1], reason=str(error))

    async def _settle(self, key: Key) -> None:
        record = await self._lookup(*key).load()
        if record is not None and self._cares(key[0]):
            await self._table.ensure(key)
        for row in await self._table.lives(key):
            left: Row | None = row
            while left and (found := due(left, record)):
                await self._tell(left, found, record)
                record = await self._lookup(*key).load()
                left = next(
                    (one for one in await self._table.lives(key) if one.uid == row.uid), None
                )

    def _cares(self, namespace: str) -> bool:
        return self.has(namespace, "on_start") or self.has(namespace, "on_stop")

    async def _tell(self, row: Row, found: Due, record: "Record | None") -> None:
        if found.what == "forget":
            await self._forget(row)
            return
        if self.has(row.namespace, found.what):
            args = _ended(record, found) if found.what == "on_stop" else []
            await self.run(row, found.what, f"{found.what}:{found.generation}", args)
        mark = self._table.mark_stopped if found.what == "on_stop" else self._table.mark_started
        await mark(row.uid, found.generation)

    async def run(self, row: Row, hook: str, key: str, args: list[Any]) -> bool:
        """Run a hook; return whether it ended well. Its failure is reported, not raised.

        Raises:
            WorkerUnavailableError, LostError: it must be run again.
        """
        try:
            await self._call(row, "hook", hook, key, args)
        except WorkerUnavailableError:
            raise
        except SandboxError as error:
            log.warning("hook failed", hook=hook, sandbox=row.id, reason=str(error))
            if hook != "on_error":
                self.report(row, error)
            return False
        return True

    def report(self, row: Row, error: SandboxError) -> None:
        """Tell the object's `on_error` of an error that no caller hears of."""
        if self.has(row.namespace, "on_error"):
            self._spawn(self._report(row, error))

    async def _report(self, row: Row, error: SandboxError) -> None:
        try:
            await self.run(row, "on_error", "", [error.to_wire()])
        except (WorkerUnavailableError, LostError):
            log.warning("error not reported", sandbox=row.id, reason=str(error))

    async def _forget(self, row: Row) -> None:
        if self._registry.known(row.namespace):
            await self._call(row, "forget", "", "forget", [])
        await self._table.forget(row.uid)

    async def _call(self, row: Row, kind: str, method: str, key: str, args: list[Any]) -> None:
        known = self._registry.known(row.namespace)
        if known is None:
            return
        delivery = Delivery(
            call="", key=f"{row.uid}:{key}" if key else "", kind=kind, namespace=row.namespace,
            id=row.id, object=row.uid, method=method, args=args,
        )  # fmt: skip
        # Who asked for the start waits for it: the hook must not wait for that call in turn.
        await self._deliveries.call(known.project, delivery, self._timeout, origin.calls())


def _ended(record: "Record | None", found: Due) -> list[Any]:
    """Return what `on_stop` is given: the exit code, and why the sandbox stopped."""
    if record is None or record.generation != found.generation:
        return [{"exit_code": None, "reason": "gone"}]
    return [{"exit_code": record.exit_code, "reason": record.reason or "stop"}]
