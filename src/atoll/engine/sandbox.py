"""One object per sandbox id: every transition of an id goes through it, one at a time.

Callers that want the same thing at the same time share one transition; a caller who leaves does
not take it away from the others. What a transition decides is in the store before it acts, and
before anybody hears of it. What each does is in `starting`, `freezing` and `ending`; that there is
one at a time is here. The object holds no files and no container: `Lifecycle` makes and removes
those, `Directory` keeps the record.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog

from atoll.engine.capacity import metrics
from atoll.engine.commands.operations import Operations, not_found
from atoll.engine.commands.sessions import Carried
from atoll.engine.egress import control
from atoll.engine.leftovers import adoption
from atoll.engine.lifecycle import ending, failures, freezing, joining, lives, starting, variables
from atoll.engine.lifecycle.activity import Activity, Use
from atoll.engine.lifecycle.deathwatch import DeathWatch
from atoll.engine.lifecycle.transitions import Transitions
from atoll.engine.lifecycle.variables import Variables
from atoll.engine.link.link import Endpoint, LinkError
from atoll.engine.shared import Shared
from atoll.engine.store import record as rules
from atoll.engine.store.entry import Entry, outpaced
from atoll.engine.store.record import IDLE, MEMORY, REQUESTED, Record
from atoll.errors import ContainerUnavailableError, SandboxError
from atoll.wire.sandbox import Metrics, NamespaceConfig, SandboxInfo, SandboxOptions, State

log = structlog.get_logger(__name__)

MAX_ARCHIVES = 4
"""Backups of one sandbox made and put back at once, each by a process of 13 MB of the agent; others
wait."""


class Sandbox:
    """One durable object.

    Args:
        namespace: checked name.
        id: checked id.
        shared: what all sandboxes of the engine work with.
    """

    def __init__(self, namespace: str, id: str, shared: Shared) -> None:
        self.namespace = namespace
        self.id = id
        self.endpoint: Endpoint | None = None
        self.operations: Operations | None = None
        self.activity = Activity()
        self.used = False  # by a caller of this engine
        self.thawed = asyncio.Event()
        self.archiving = asyncio.Semaphore(MAX_ARCHIVES)
        self.thawed.set()
        self.shared = shared
        self._transitions = Transitions(f"{namespace}/{id}")
        self.entry = Entry(namespace, id, shared.store)
        self._teller = variables.Teller(self.entry)
        self._deathwatch: DeathWatch | None = None
        self.carried = Carried(shared.store, namespace, id)

    # Reading: never starts anything.

    @property
    def record(self) -> Record | None:
        """The record as last read or written; `load` reads it first."""
        return self.entry.record

    async def load(self) -> Record | None:
        """Return the record; None when there is none or only a tombstone."""
        return await self.entry.load()

    async def metrics(self) -> Metrics:
        """Return what it uses now; its record was read."""
        record = self.entry.existing
        return await metrics.measured(self.shared.lifecycle, record, self.info(record))

    def renew(self) -> None:
        """Have idle time begin anew; one that sleeps goes on sleeping."""
        self.activity.note(Use.RENEWAL)

    def info(self, record: Record) -> SandboxInfo:
        """Return what callers may know of *record*."""
        return rules.info(record, self.defaults, self.shared.settings)

    @property
    def defaults(self) -> NamespaceConfig:
        """What its namespace says."""
        return self.shared.namespaces.get(self.namespace, NamespaceConfig())

    @property
    def wanted(self) -> SandboxOptions:
        """The options of the next start, with all defaults filled in."""
        own = self.record.wanted if self.record else SandboxOptions()
        return rules.with_defaults(own, self.defaults, self.shared.settings)

    def is_in(self, state: State) -> bool:
        """Whether the record, as last read or written, says *state*."""
        return self.record is not None and self.record.state is state

    @property
    def transition(self) -> str | None:
        """The kind of the one under way."""
        return self._transitions.kind

    @property
    def idle(self) -> bool:
        """Whether it is awake and nothing holds off sleep."""
        awake = self.is_in(State.RUNNING) and self._transitions.kind is None
        return awake and not self.activity.holds(self._uses())

    def _uses(self) -> Iterator[Use]:
        """Yield what uses it without a call."""
        if self.operations and self.operations.waiting:
            yield Use.ABANDONED
        if self.shared.processes.watches.keep_awake((self.namespace, self.id)):
            yield Use.KEEP_AWAKE

    async def awake(self) -> Endpoint | None:
        """Return the agent's endpoint if the sandbox is awake; wakes nothing, is no activity."""
        await self.load()
        while self._transitions.kind in {"stop", "freeze", "snapshot", "restore"}:
            await self._transitions.settled()
        await joining.meet(self)
        return self.endpoint if self.is_in(State.RUNNING) and not self._transitions.kind else None

    # Using: wakes, and holds off sleep.

    @asynccontextmanager
    async def use(self, *, operation: str | None = None) -> AsyncIterator[Endpoint]:
        """Make sure that the sandbox runs, and keep it awake meanwhile.

        Args:
            operation: a running operation that is wanted; a sandbox that sleeps has none and is
                not woken for it.

        Raises:
            SandboxError: it cannot start; or it went during the use, with the reason.
        """
        endpoint: Endpoint | None = None
        with self.activity.during(Use.CALL):
            try:
                if operation:
                    await joining.meet(self)
                    self.running_operations(operation)
                endpoint = await self.ensure_running(lives.meant(self.namespace, self.id))
                yield endpoint
            except LinkError as error:
                raise await failures.explained(self, endpoint, error) from error
            except failures.OF_FILES as error:
                await failures.check_store(self, error)
                raise

    def running_operations(self, operation: str) -> Operations:
        """Return the operations of the start that is running.

        Raises:
            OperationNotFoundError: it is not running, so it has no such *operation*.
        """
        if self.operations is None:
            raise not_found(operation)
        return self.operations

    async def ensure_running(self, life: str | None = None) -> Endpoint:
        """Return the agent's endpoint; create, start or wake the sandbox first where needed.

        Args:
            life: the one that is meant, see `lives`; nothing is started when it is over.
        """
        self.used = True
        await self.load()
        while True:
            if self._transitions.kind is None:
                lives.check(self.id, life, self.record)
            if self._transitions.kind is None:
                if self.endpoint and self.is_in(State.RUNNING):
                    if await self.shared.objects.preparing.ready(self):
                        return self.endpoint
                    continue
                if joining.theirs(self):
                    await self.entry.news(joining.LOOK_AGAIN)
                    continue
                if self.endpoint and self.is_in(State.FROZEN):
                    self._transitions.begin("thaw", freezing.thaw(self, self.endpoint))
                elif joining.unmet(self):
                    self._transitions.begin("join", joining.join(self))
                else:
                    self._transitions.begin("start", starting.start(self))
            kind = self._transitions.kind
            await self._settled(kind if kind in {"start", "thaw", "join"} else None)

    async def _settled(self, kind: str | None) -> bool:
        """As `Transitions.settled`; where another engine was quicker, see what it did instead."""
        try:
            return await self._transitions.settled(joining=kind)
        except SandboxError as error:
            if not outpaced(error):
                raise
            await self.entry.follow(fresh=True)
            return False

    async def configure(self, options: SandboxOptions) -> Record:
        """Create the record if there is none, and remember *options*. Starts nothing.

        Raises:
            SandboxError: an option cannot work.
        """
        rules.check_options(options, self.shared.settings.instance_types)
        if options.runtime is not None:
            self.shared.lifecycle.parts.runtime(options.runtime)
        while self._transitions.kind == "destroy":
            await self._transitions.settled()
        await self.entry.get_or_create(options, self.shared.new_name())
        self.shared.faults.at("create.recorded")
        record = await self.entry.change(lambda old: rules.with_options(old, options))
        if self.endpoint:
            await self.apply(self.endpoint)
        return record

    async def set_env(self, env: Variables) -> None:
        """Set variables of the sandbox, now and for every later start. Starts nothing."""
        rules.check_env(env)
        await self.configure(SandboxOptions())
        await self.entry.change(lambda old: rules.with_env(old, env))
        if self.endpoint:
            await self.apply(self.endpoint, env)

    async def apply(self, endpoint: Endpoint, env: Variables | None = None) -> None:
        """Make what runs follow those options that apply at once."""
        await control.apply(self, endpoint)
        if not self.is_in(State.RUNNING):  # a frozen one is told when it thaws
            return
        try:
            await self._teller.tell(endpoint, self.defaults, env or {})
        except LinkError as error:
            # Where the sandbox has ended, its next start has the variables.
            if not await self.check_alive(endpoint):
                raise await failures.explained(self, endpoint, error) from error

    # Ending.

    async def stop(self, reason: str = REQUESTED, signal: str = ending.TERM) -> Record | None:
        """Stop the container; files and session state stay. Idempotent.

        Args:
            signal: what its commands are told first; KILL follows for those that do not end.
        """
        while True:
            await self.load()
            if self._transitions.kind is None:
                if self.record is None or not self.record.live:
                    return self.record
                with suppress(ContainerUnavailableError):  # it is stopped all the same
                    await joining.meet(self)
                if self._transitions.kind:
                    continue
                if not joining.theirs(self):
                    left = self.is_in(State.STARTING)  # by an engine that died
                    work = ending.clean_up(self) if left else ending.stop(self, reason, signal)
                    self._transitions.begin("stop", work)
            if joining.theirs(self):
                await self.entry.news(joining.LOOK_AGAIN)
            if await self._settled("stop"):
                return self.record

    async def sleep(self, reason: str = REQUESTED) -> None:
        """Freeze or stop, as `sleep_mode` says. Idempotent; what runs does not hold it off."""
        await self.load()
        await self.settle()
        if self.endpoint and self.is_in(State.RUNNING) and self.wanted.sleep_mode == "freeze":
            self._transitions.begin("freeze", freezing.sleep(self, self.endpoint, reason))
            await self._transitions.settled(joining="freeze")
        elif not self.is_in(State.FROZEN):
            await self.stop(reason)

    async def sleep_if_idle(self, idle_for: float) -> bool:
        """Sleep unless it was used within *idle_for* seconds; return whether it sleeps now."""
        if await joining.used_elsewhere(self):
            self.renew()
        # No await between the check and the begin: a use cannot slip in between.
        if not self.idle or self.activity.idle() < idle_for:
            return False
        await self.sleep(IDLE)
        return True

    async def give_up_memory(self, idle_for: float) -> bool:
        """Stop, also what is frozen, unless it was used within *idle_for* seconds."""
        frozen = self.is_in(State.FROZEN) and self._transitions.kind is None
        if not (self.idle or frozen) or self.activity.idle() < idle_for:
            return False
        await self.stop(MEMORY)
        return True

    async def destroy(self, reason: str = REQUESTED) -> None:
        """Remove the sandbox with its files; leave a tombstone. Idempotent, also when it is used."""
        while True:
            record = await self.load()
            if self._transitions.kind is None:
                if record is None:
                    return
                self._transitions.begin("destroy", ending.destroy(self, reason))
            elif self._transitions.kind == "start":
                self._transitions.cancel()
            if await self._settled("destroy"):
                return

    async def alone(self, kind: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do *work* as a transition: after the one under way, and nothing else meanwhile."""
        await self.load()
        await self.settle()
        self._transitions.begin(kind, work())
        await self._transitions.settled(joining=kind)

    async def check_alive(self, endpoint: Endpoint) -> bool:
        """Look whether the container is still there; record the stop when it is gone.

        Returns:
            True when it is gone.
        """
        if await endpoint.runtime.find(endpoint.host_ref):
            return False
        if self._transitions.kind is None:
            await self.shared.store.fresh(self.namespace, self.id)
            await joining.followed(self)
        if self.endpoint is endpoint and self._transitions.kind is None:
            self._transitions.begin("stop", ending.clean_up(self))
            await self._transitions.settled()
        return True

    # After a restart of the engine.

    async def adopt(self, record: Record) -> None:
        """Take over what an earlier engine left of *record*: a running container, or leftovers."""
        self.entry.adopt(record)
        if not joining.may_take(self):
            await joining.tried(self)
            return
        self.counted()
        if record.last_activity_at:
            self.activity.adopt((rules.now() - record.last_activity_at).total_seconds())
        alive = record.state in {State.RUNNING, State.FROZEN}
        if alive and (found := await adoption.find(self.shared.lifecycle, record)):
            self.reached(found)
            if record.state is State.FROZEN:
                self.thawed.clear()
            await control.adopt(self, found.endpoint)
            await self.shared.processes.watches.adopt(self, found.endpoint)
            return
        self._transitions.begin("stop", ending.clean_up(self))
        await self._transitions.settled()

    def detach(self) -> None:
        """The engine stops, the sandbox does not: forget timers."""
        if self.operations:
            self.operations.close()
        if self._deathwatch:
            self._deathwatch.close()

    async def settle(self) -> None:
        """Wait until no transition is under way."""
        while self._transitions.kind:
            await self._transitions.settled()

    def counted(self) -> None:
        """It has a container: it takes a place, whatever the limits say."""
        if (self.namespace, self.id) not in self.shared.live:
            self.shared.live[self.namespace, self.id] = self
            self.shared.admission.adopt(self.namespace)

    def left(self) -> None:
        """It does not run any more: give its place back."""
        self.shared.admission.leave(self.namespace)
        self.shared.live.pop((self.namespace, self.id), None)

    def reached(self, operations: Operations) -> None:
        """Its agent answers."""
        self.endpoint, self.operations = operations.endpoint, operations
        self._deathwatch = DeathWatch(operations.endpoint, self.check_alive)

    def forget_endpoint(self) -> None:
        """Its agent is not reached any more."""
        self.thawed.set()
        self.detach()
        self.endpoint = self.operations = None

    async def note_activity(self) -> None:
        """Write the time of the last use, so that idle time goes on counting after a restart."""
        if self.record and self.record.live and not self._transitions.kind:
            idle = self.activity.idle()
            step = self.shared.peers.note_step(self.wanted)
            await self.entry.change(lambda old: rules.activity(old, rules.now(), idle, step))
