"""One object per sandbox id: every transition of an id goes through it, one at a time.

Callers that want the same thing at the same time share one transition; a caller who leaves does
not take it away from the others. What a transition decides is in the store before it acts, and
before anybody hears of it. The object holds no files and no container: `Lifecycle` makes and
removes those, `Directory` keeps the record.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import structlog

from atoll.engine import adoption, losses, variables
from atoll.engine import record as rules
from atoll.engine.entry import Entry
from atoll.engine.lifecycle import Launch, in_force
from atoll.engine.link import Endpoint, LinkError
from atoll.engine.operations import Operations, not_found
from atoll.engine.processes.records import GONE, SLEEP
from atoll.engine.record import Record
from atoll.engine.sessions import Carried
from atoll.engine.shared import Shared
from atoll.engine.transitions import Transitions
from atoll.engine.variables import Variables
from atoll.errors import ResourceBusyError, SandboxError
from atoll.wire.sandbox import NamespaceConfig, SandboxInfo, SandboxOptions, State

log = structlog.get_logger(__name__)


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
        self.last_used = time.monotonic()
        self.used = False  # by a caller of this engine
        self._busy = 0
        self._shared = shared
        self._transitions = Transitions(f"{namespace}/{id}")
        self._entry = Entry(namespace, id, shared.store)
        self._teller = variables.Teller(self._entry)
        self.carried = Carried(shared.store, namespace, id)

    # Reading: never starts anything.

    @property
    def record(self) -> Record | None:
        """The record as last read or written; `load` reads it first."""
        return self._entry.record

    async def load(self) -> Record | None:
        """Return the record; None when there is none or only a tombstone."""
        return await self._entry.load()

    def info(self, record: Record) -> SandboxInfo:
        """Return what callers may know of *record*."""
        return rules.info(record, self._namespace, self._shared.settings)

    @property
    def _namespace(self) -> NamespaceConfig:
        return self._shared.namespaces.get(self.namespace, NamespaceConfig())

    @property
    def wanted(self) -> SandboxOptions:
        """The options of the next start, with all defaults filled in."""
        own = self.record.wanted if self.record else SandboxOptions()
        return rules.with_defaults(own, self._namespace, self._shared.settings)

    def _is(self, state: State) -> bool:
        return self.record is not None and self.record.state is state

    @property
    def idle(self) -> bool:
        """Whether it is awake and nothing holds off sleep."""
        waiting = self.operations is not None and self.operations.waiting
        awake = self._is(State.RUNNING) and self._transitions.kind is None
        held = self._shared.processes.watches.keep_awake((self.namespace, self.id))
        return awake and self._busy == 0 and not waiting and not held

    async def awake(self) -> Endpoint | None:
        """Return the agent's endpoint if the sandbox is awake; wakes nothing, is no activity."""
        await self.load()
        while self._transitions.kind in {"stop", "freeze"}:
            await self._transitions.settled()
        return self.endpoint if self._is(State.RUNNING) and not self._transitions.kind else None

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
        self._busy += 1
        endpoint: Endpoint | None = None
        try:
            if operation:
                self.running_operations(operation)
            endpoint = await self.ensure_running()
            yield endpoint
        except LinkError as error:
            raise await self.explain(endpoint, error) from error
        finally:
            self._busy -= 1
            self.last_used = time.monotonic()

    def running_operations(self, operation: str) -> Operations:
        """Return the operations of the start that is running.

        Raises:
            OperationNotFoundError: it is not running, so it has no such *operation*.
        """
        if self.operations is None:
            raise not_found(operation)
        return self.operations

    async def ensure_running(self) -> Endpoint:
        """Return the agent's endpoint; create, start or wake the sandbox first where needed."""
        self.used = True
        await self.load()
        while True:
            if self._transitions.kind is None:
                if self.endpoint and self._is(State.RUNNING):
                    return self.endpoint
                if self.endpoint and self._is(State.FROZEN):
                    self._transitions.begin("thaw", self._thaw(self.endpoint))
                else:
                    self._transitions.begin("start", self._start())
            kind = self._transitions.kind
            await self._transitions.settled(joining=kind if kind in {"start", "thaw"} else None)

    async def configure(self, options: SandboxOptions) -> Record:
        """Create the record if there is none, and remember *options*. Starts nothing.

        Raises:
            SandboxError: an option cannot work.
        """
        rules.check_options(options, self._shared.settings.instance_types)
        if options.runtime is not None:
            self._shared.lifecycle.parts.runtime(options.runtime)
        while self._transitions.kind == "destroy":
            await self._transitions.settled()
        await self._entry.get_or_create(options, self._shared.new_name())
        record = await self._entry.change(lambda old: rules.with_options(old, options))
        if self.endpoint:
            await self._apply(self.endpoint)
        return record

    async def set_env(self, env: Variables) -> None:
        """Set variables of the sandbox, now and for every later start. Starts nothing."""
        rules.check_env(env)
        await self.configure(SandboxOptions())
        await self._entry.change(lambda old: rules.with_env(old, env))
        if self.endpoint:
            await self._apply(self.endpoint, env)

    async def _apply(self, endpoint: Endpoint, env: Variables | None = None) -> None:
        """Make what runs follow those options that apply at once."""
        await self._shared.lifecycle.parts.networks.set_internet(
            endpoint.host_ref, allowed=self.wanted.enable_internet is not False
        )
        if not self._is(State.RUNNING):  # a frozen one is told when it thaws
            return
        try:
            await self._teller.tell(endpoint, self._namespace, env or {})
        except LinkError as error:
            # Where the sandbox has ended, its next start has the variables.
            if not await self.check_alive(endpoint):
                raise await self.explain(endpoint, error) from error

    # Ending.

    async def stop(self) -> Record | None:
        """Stop the container; files and session state stay. Idempotent."""
        while True:
            await self.load()
            if self._transitions.kind is None:
                if self.record is None or not self.record.live:
                    return self.record
                self._transitions.begin("stop", self._stop())
            if await self._transitions.settled(joining="stop"):
                return self.record

    async def sleep_if_idle(self, idle_for: float) -> bool:
        """Sleep unless it was used within *idle_for* seconds; return whether it sleeps now."""
        # No await between the check and the begin: a use cannot slip in between.
        if not self.idle or time.monotonic() - self.last_used < idle_for:
            return False
        if self.endpoint and self.wanted.sleep_mode == "freeze":
            self._transitions.begin("freeze", self._freeze(self.endpoint))
            return await self._transitions.settled(joining="freeze")
        await self.stop()
        return True

    async def destroy(self) -> None:
        """Remove the sandbox with its files; leave a tombstone. Idempotent, also when it is used."""
        while True:
            record = await self.load()
            if self._transitions.kind is None:
                if record is None:
                    return
                self._transitions.begin("destroy", self._destroy())
            elif self._transitions.kind == "start":
                self._transitions.cancel()
            if await self._transitions.settled(joining="destroy"):
                return

    async def explain(self, endpoint: Endpoint | None, error: LinkError) -> SandboxError:
        """Return why a connection to the agent broke, in terms of what happened to the sandbox."""
        kind = self._transitions.kind
        generation = endpoint.generation if endpoint else None
        if known := losses.known(self.id, self.record, kind, generation, str(error)):
            return known
        gone = endpoint is not None and await self.check_alive(endpoint)
        return losses.unknown(self.id, str(error), gone=gone)

    async def check_alive(self, endpoint: Endpoint) -> bool:
        """Look whether the container is still there; record the stop when it is gone.

        Returns:
            True when it is gone.
        """
        if await endpoint.runtime.find(endpoint.host_ref):
            return False
        if self.endpoint is endpoint and self._transitions.kind is None:
            self._transitions.begin("stop", self._clean_up())
            await self._transitions.settled()
        return True

    # After a restart of the engine.

    async def adopt(self, record: Record) -> None:
        """Take over what an earlier engine left of *record*: a running container, or leftovers."""
        self._entry.adopt(record)
        self._shared.live[record.key] = self
        self._shared.admission.adopt(self.namespace)
        if record.last_activity_at:
            idle = (rules.now() - record.last_activity_at).total_seconds()
            self.last_used = time.monotonic() - max(0.0, idle)
        alive = record.state in {State.RUNNING, State.FROZEN}
        if alive and (found := await adoption.find(self._shared.lifecycle, record)):
            self.endpoint, self.operations = found.endpoint, found
            await self._shared.processes.watches.adopt(self, found.endpoint)
            return
        self._transitions.begin("stop", self._clean_up())
        await self._transitions.settled()

    def detach(self) -> None:
        """The engine stops, the sandbox does not: forget timers."""
        if self.operations:
            self.operations.close()

    async def settle(self) -> None:
        """Wait until no transition is under way."""
        while self._transitions.kind:
            await self._transitions.settled()

    # Transitions: what they do. How they are shared: `Transitions`.

    async def _start(self) -> None:
        if (found := await self.load()) and found.live:  # a stop that failed half-way
            await self._clean_up()
        wanted = self.wanted
        size = rules.instance(wanted.instance_type or "", self._shared.settings.instance_types)
        self._shared.lifecycle.parts.runtime(wanted.runtime or "")
        await self._shared.admission.enter(
            self.namespace, self._namespace.max_instances, (wanted.queue_ms or 0) / 1000
        )
        before = found.state if (found := await self.load()) else State.CREATED
        try:
            record = await self._entry.start(self._shared.new_name(), self._shared.new_name())
            self._shared.live[record.key] = self
            launch = Launch(record, wanted, size, variables.layers(self._namespace, record))
            endpoint = await self._shared.lifecycle.start(launch)
            await self._started(launch, endpoint)
        except BaseException:
            await self._not_started(before)
            raise

    async def _started(self, launch: Launch, endpoint: Endpoint) -> None:
        force, before = in_force(self._shared.lifecycle, launch), self._entry.existing.in_force
        if before:  # what carried sessions know
            force = msgspec.structs.replace(force, env=before.env)
        now = rules.now()
        await self._entry.save(
            state=State.RUNNING,
            in_force=force,
            started_at=now,
            last_activity_at=now,
            exit_code=None,
        )
        if before:
            await self.carried.restore(endpoint)
        self.operations = Operations(endpoint, self._shared.settings.lifecycle.orphan_grace)
        self.endpoint = endpoint
        # From here on changes are applied at once; those made during the start were not.
        await self._apply(endpoint)
        await self._shared.processes.woken(self, endpoint)
        self.last_used = time.monotonic()

    async def _not_started(self, before: State) -> None:
        await self._entry.settle()
        self._forget_endpoint()
        record = self.record
        if record and record.host_ref:
            await self._shared.lifecycle.remove(record.host_ref)
            state = before if record.state is State.STARTING else State.STOPPED
            await self._entry.save(state=state, host_ref=None)
        self._left()

    async def _freeze(self, endpoint: Endpoint) -> None:
        await self.carried.keep_changes(endpoint, lambda: True)
        # Recorded first: a frozen sandbox that is taken for a running one would look dead.
        await self._entry.save(state=State.FROZEN)
        try:
            await endpoint.runtime.pause(endpoint.host_ref)
        except BaseException as error:
            await self._thaw(endpoint)
            if isinstance(error, TimeoutError):
                raise ResourceBusyError(f"sandbox {self.id!r} could not be frozen") from error
            raise

    async def _thaw(self, endpoint: Endpoint) -> None:
        await endpoint.runtime.resume(endpoint.host_ref)
        await self._entry.save(state=State.RUNNING)
        await self._apply(endpoint)

    async def _stop(self) -> None:
        endpoint = self.endpoint
        if endpoint and self._is(State.FROZEN):
            await self._thaw(endpoint)
        await self._entry.save(state=State.STOPPING)
        if endpoint:
            await self.carried.keep(endpoint, lambda: True)
            await self._shared.lifecycle.shut_down(endpoint)
        await self._clean_up()

    async def _clean_up(self) -> None:
        """Remove what a start made and record that the sandbox is stopped."""
        record = self._entry.existing
        self._forget_endpoint()
        if record.host_ref:
            await self._shared.lifecycle.remove(record.host_ref)
        reason = SLEEP if record.state is State.STOPPING else GONE
        await self._shared.processes.watches.gone(record.key, reason)
        never_ran = record.state is State.STARTING and record.started_at is None
        await self._entry.save(state=State.CREATED if never_ran else State.STOPPED, host_ref=None)
        self._left()

    async def _destroy(self) -> None:
        record = self._entry.existing
        self._forget_endpoint()
        # The tombstone comes first: from here on a crash leaves only orphans for the reaper.
        await self._entry.save(
            state=State.DESTROYED, host_ref=None, in_force=None, env={}, wanted=SandboxOptions(),
            expires_at=rules.forgotten(self._shared.settings),
        )  # fmt: skip
        try:
            await self.carried.forget()
            await self._shared.processes.forget(record.key, record.layer_id)
            if record.host_ref:
                await self._shared.lifecycle.remove(record.host_ref)
            await self._shared.lifecycle.forget_files(record)
        finally:
            if record.live:
                self._left()

    def _left(self) -> None:
        self._shared.admission.leave(self.namespace)
        self._shared.live.pop((self.namespace, self.id), None)

    def _forget_endpoint(self) -> None:
        if self.operations:
            self.operations.close()
        self.endpoint = self.operations = None

    async def note_activity(self) -> None:
        """Write the time of the last use, so that idle time goes on counting after a restart."""
        if self.record and self.record.live and not self._transitions.kind:
            idle = 0.0 if self._busy else time.monotonic() - self.last_used
            await self._entry.change(lambda old: rules.activity(old, rules.now(), idle))
