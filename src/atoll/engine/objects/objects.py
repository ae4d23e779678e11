"""The engine's side of sandbox classes: what the rest of the engine and the server ask for."""

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from atoll.engine.egress import stored
from atoll.engine.lifecycle.activity import Use
from atoll.engine.objects import origin, timers
from atoll.engine.objects.deliveries import Attachment, Deliveries, LostError, lost
from atoll.engine.objects.hooks import Hooks
from atoll.engine.objects.preparing import Preparing
from atoll.engine.objects.registry import Known, Registry
from atoll.engine.objects.table import Key, Row, Table
from atoll.engine.objects.timers import Timer, Timers
from atoll.engine.store.database import Database
from atoll.errors import (
    DeadlockError,
    MethodNotFoundError,
    SandboxError,
    ValidationFailedError,
    WorkerUnavailableError,
)
from atoll.settings import Settings
from atoll.wire import ids
from atoll.wire.objects import (
    HOOKS,
    MAX_CALLS,
    Answer,
    AttachWorker,
    CallRequest,
    Delivery,
    Project,
    ProjectConfig,
    ScheduleRequest,
)
from atoll.wire.sandbox import SandboxOptions

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox

log = structlog.get_logger(__name__)


class Objects:
    """Objects of all sandbox classes.

    Args:
        database: where everything about them is kept.
        settings: time limits, and the directory of their storage.
        lookup: returns the sandbox of a namespace and id.
        now: the clock of timers.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        lookup: "Callable[[str, str], Sandbox]",
        now: Callable[[], float] = time.time,
    ) -> None:
        limits = settings.workers
        self._limits = limits
        self._database = database
        self._lookup = lookup
        self.directory: Path = settings.storage.state_dir / "objects"
        self.table = Table(database)
        self.registry = Registry(database)
        self.deliveries = Deliveries(limits.reload_grace)
        self.hooks = Hooks(self.table, self.registry, self.deliveries, lookup, limits.hook_timeout)
        self.preparing = Preparing(
            self.registry, self.hooks, self.table, self.deliveries, limits.ports_timeout
        )
        self._now = now
        self.timers = Timers(database, self._fire, self._gave_up, now)

    async def load(self) -> None:
        """Read what earlier engines knew; before any sandbox is taken over."""
        await self.registry.load()
        await self.table.bury_lost()

    async def open(self) -> None:
        """Go on with what an earlier engine had begun, and begin to fire timers."""
        for project, namespace in self.registry.deleting():
            await self._delete(project, namespace)
        self.timers.open()

    async def close(self) -> None:
        """Leave everything to the next engine."""
        self.deliveries.close()
        await self.timers.close()
        await self.preparing.close()
        await self.hooks.close()

    # What happens to sandboxes

    async def destroyed(self, box: "Sandbox") -> None:
        """A life is over: its storage and timers are. Part of the transition."""
        if not self.registry.known(box.namespace):
            return  # only classes have objects
        await self.table.bury((box.namespace, box.id))
        self.hooks.notify([(box.namespace, box.id)])

    def stopped(self, box: "Sandbox") -> None:
        """A start is over."""
        if self.registry.known(box.namespace):
            self.hooks.notify([(box.namespace, box.id)])

    async def failed(self, box: "Sandbox", error: SandboxError) -> None:
        """A start failed: tell `on_error`."""
        if self.hooks.has(box.namespace, "on_error"):
            self.hooks.report(await self.table.ensure((box.namespace, box.id)), error)

    async def expired(self, box: "Sandbox") -> bool:
        """Let the class decide about a sandbox that was idle for `sleep_after`.

        Returns:
            True when it did. Nobody there, or a hook that fails: the engine decides.
        """
        known = self.registry.known(box.namespace)
        if known is None or "on_activity_expired" not in known.cls.hooks:
            return False
        if not self.deliveries.responsive(known.project):
            return False
        row = await self.table.ensure((box.namespace, box.id))
        try:
            done = await self.hooks.run(row, "on_activity_expired", "", [])
        except (WorkerUnavailableError, LostError):
            return False
        if done:
            box.activity.note(Use.RENEWAL)
        return done

    # Workers

    async def configure(self, name: str, config: ProjectConfig) -> Project:
        """Apply migrations; destroy the sandboxes of deleted classes.

        Raises:
            InvalidConfigError: a migration cannot be applied.
        """
        ids.check_namespace(name)
        for namespace in config.classes.values():
            ids.check_namespace(namespace)
        stored = await self.registry.configure(name, config)
        for namespace in stored.deleting:
            await self._delete(name, namespace)
        return Project(namespaces=stored.namespaces, tag=stored.tag)

    async def _delete(self, project: str, namespace: str) -> None:
        rows = await self._database.read(
            "SELECT id FROM sandboxes WHERE namespace = ? AND state != 'destroyed'", (namespace,)
        )
        for (id,) in rows:
            log.info("class deleted", project=project, namespace=namespace, sandbox=id)
            await self._lookup(namespace, id).destroy()
        await self.registry.deleted(project, namespace)

    async def attach(self, project: str, request: AttachWorker) -> tuple[Attachment, list[str]]:
        """Attach a Worker process; return it, and the namespaces whose class changed.

        Raises:
            InvalidConfigError: a cron is no expression.
            ValidationFailedError: a name or a host is none.
        """
        ids.check_namespace(project)
        for cls in request.classes:
            ids.check_namespace(cls.namespace)
            stored.check_defaults(cls.options.egress)
            if unknown := set(cls.hooks) - set(HOOKS):
                raise ValidationFailedError(
                    f"there is no hook {min(unknown)!r}", context={"field": "hooks"}
                )
        await self.timers.set_crons(project, request.crons)
        changed = await self.registry.attach(project, request.classes)
        attachment = self.deliveries.attach(project, request)
        self.hooks.notify(await self.table.untold(self.registry.namespaces(project)))
        self.timers.look()
        return attachment, changed

    def answer(self, project: str, call: str, answer: Answer) -> None:
        """Take an answer; raise as `Deliveries.answer`."""
        self.deliveries.answer(project, call, answer)

    # Methods

    async def call(self, namespace: str, id: str, request: CallRequest) -> Any:
        """Call a method of an object and return its encoded value. Starts no container.

        Raises:
            MethodNotFoundError: the class has none of this name, or there is no class.
            WorkerUnavailableError: its Worker is not running.
            DeadlockError: methods call one another without end.
            TimeoutError: it took too long.
            SandboxError: what it raised.
        """
        if before := self.registry.known(namespace):  # a reload may bring the method
            await self.deliveries.present(before.project)
        known = self._with_method(namespace, request.method)
        waiting = origin.calls()
        if len(waiting) >= MAX_CALLS:
            raise DeadlockError(
                f"{MAX_CALLS} calls wait for one another: {request.method} calls itself",
                context={"method": request.method, "namespace": namespace, "sandbox": id},
                suggestion="end the recursion",
            )
        row = await self._row(namespace, id)
        limit = self._limits.call_timeout
        timeout = limit if request.timeout_ms is None else request.timeout_ms / 1000
        delivery = _delivery(row, "method", request.method, request.args, request.kwargs)
        try:
            return await self.deliveries.call(known.project, delivery, timeout, waiting)
        except LostError as error:
            raise lost(request.method) from error

    def _with_method(self, namespace: str, method: str) -> Known:
        known = self.registry.known(namespace)
        if known is not None and method in known.cls.methods:
            return known
        of = f"the class {known.cls.name}" if known else f"namespace {namespace!r}"
        there = ", ".join(known.cls.methods) if known else ""
        raise MethodNotFoundError(
            f"{of} has no method {method!r}",
            context={"method": method, "namespace": namespace},
            suggestion=f"there are: {there}"
            if there
            else "write it in the sandbox class of a Worker, and start that with `atoll dev`",
        )

    async def _row(self, namespace: str, id: str) -> Row:
        """Return the object of an id; its sandbox gets a record, so that destroying it finds it."""
        box = self._lookup(namespace, id)
        if await box.load() is None:
            await box.configure(SandboxOptions())
        return await self.table.ensure((namespace, id))

    # Timers

    async def schedule(self, namespace: str, id: str, request: ScheduleRequest) -> Timer:
        """Store a call for later; raise as `call` where it can be told now."""
        self._with_method(namespace, request.method)
        if (request.at is None) == (request.delay_ms is None):
            raise ValidationFailedError(
                "a schedule has either a time or a delay", context={"field": "at"}
            )
        due = self._due(request.at, request.delay_ms or 0)
        await self._row(namespace, id)
        return await self.timers.add((namespace, id), request.method, request.payload, due)

    async def set_alarm(self, namespace: str, id: str, at: datetime) -> None:
        """Set the alarm of an object.

        Raises:
            MethodNotFoundError: its class has no `alarm`.
        """
        known = self.registry.known(namespace)
        if known is None or not known.cls.alarm:
            raise MethodNotFoundError(
                "an alarm needs a method `alarm` of the sandbox class",
                context={"method": "alarm", "namespace": namespace},
                suggestion="write `async def alarm(self): ...` in the class",
            )
        await self._row(namespace, id)
        await self.timers.set_alarm((namespace, id), self._due(at, 0))

    async def _fire(self, timer: Timer) -> None:
        if timer.kind == timers.CRON:
            await self._fire_cron(timer)
            return
        known = self.registry.known(timer.namespace)
        if known is None:
            raise WorkerUnavailableError("no Worker has this class")
        row = await self._row(timer.namespace, timer.id)
        info = {"retry_count": timer.attempts, "is_retry": timer.attempts > 0}
        args = [info] if timer.kind == timers.ALARM else [timer.payload]
        delivery = _delivery(
            row, timer.kind, timer.method, args, {}, f"{timer.uid}:{timer.attempts}"
        )
        await self.deliveries.call(known.project, delivery, self._limits.timer_timeout)

    async def _fire_cron(self, timer: Timer) -> None:
        when = timer.time.isoformat()
        delivery = Delivery(
            call="", key=f"{timer.uid} {when}", kind=timers.CRON, method="scheduled",
            args=[timer.id, when],
        )  # fmt: skip
        await self.deliveries.call(timer.namespace, delivery, self._limits.timer_timeout)

    async def _gave_up(self, timer: Timer, error: SandboxError) -> None:
        if timer.kind != timers.CRON:
            self.hooks.report(await self.table.ensure(timer.key), error)

    def _due(self, at: datetime | None, delay_ms: int) -> float:
        if at is None:
            return self._now() + delay_ms / 1000
        if at.tzinfo is None:
            raise ValidationFailedError(
                "a time needs a time zone",
                context={"field": "at"},
                suggestion="use datetime.now(UTC) + …",
            )
        return at.timestamp()

    async def schedules(self, key: Key) -> list[Timer]:
        """Return the schedules of an object, the next one first."""
        return [timer for timer in await self.timers.of(key) if timer.kind == timers.SCHEDULE]


def _delivery(
    row: Row, kind: str, method: str, args: list[Any], kwargs: dict[str, Any], key: str = ""
) -> Delivery:
    return Delivery(
        call="", key=key, kind=kind, namespace=row.namespace, id=row.id, object=row.uid,
        method=method, args=args, kwargs=kwargs,
    )  # fmt: skip
