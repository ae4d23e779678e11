"""The record of one sandbox in memory, and its compare-and-set writes, one at a time.

A write runs to its end even when its caller is cancelled: memory and store never differ.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from atoll.engine.lifecycle import states
from atoll.engine.store import record as rules
from atoll.engine.store.directory import ConflictError, Directory
from atoll.engine.store.record import InForce, Record
from atoll.errors import (
    ContainerNotReadyError,
    SandboxAlreadyExistsError,
    SandboxDestroyedError,
    SandboxError,
)
from atoll.wire.sandbox import SandboxOptions, State

T = TypeVar("T")

TRIES = 20
"""How often a change is decided anew after other engines were quicker."""

CONFLICT = "conflict"
"""`context.reason` of an error that says that another engine was quicker."""


def outpaced(error: SandboxError | None) -> bool:
    """Whether another engine was quicker: whoever looks again sees what it did."""
    return isinstance(error, ContainerNotReadyError) and error.context.get("reason") == CONFLICT


class Entry:
    """One row of the directory.

    Args:
        namespace: namespace of the sandbox.
        id: its id.
        directory: where the record is kept.
    """

    def __init__(self, namespace: str, id: str, directory: Directory) -> None:
        self.namespace = namespace
        self.id = id
        self.record: Record | None = None
        self._directory = directory
        self._loaded = False
        self._lock = asyncio.Lock()
        self._news = asyncio.Event()

    @property
    def existing(self) -> Record:
        """The record of a sandbox that was there when the caller began.

        Raises:
            SandboxDestroyedError: it was destroyed since.
        """
        if self.record is None:
            raise AssertionError("only a stored sandbox has transitions")
        if self._gone:
            raise SandboxDestroyedError(
                f"sandbox {self.id!r} was destroyed meanwhile",
                context={"namespace": self.namespace, "sandbox": self.id},
            )
        return self.record

    async def load(self) -> Record | None:
        """Return the record; None when there is none or only a tombstone."""
        if not self._loaded:
            await self._alone(self._load)
        return None if self._gone else self.record

    def adopt(self, record: Record) -> None:
        """Take over a record that was just read."""
        self.record, self._loaded = record, True

    async def follow(self, *, fresh: bool = False) -> bool:
        """Take over what another engine wrote; return whether anything was.

        Args:
            fresh: what is stored now, not what was last heard of.
        """

        async def follow() -> bool:
            if fresh:
                await self._directory.fresh(self.namespace, self.id)
            before, self._loaded = self.record, True
            self.record = await self._directory.get(self.namespace, self.id)
            self._news.set()
            return self.record != before

        return await self._alone(follow)

    async def news(self, seconds: float) -> None:
        """Wait until another engine wrote, for *seconds* at most."""
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    async def claim(self) -> None:
        """Where there are several engines: be the one that acts on the record from now on.

        Raises:
            ContainerNotReadyError: another one was quicker.
        """
        if self.existing.actor != self._directory.actor:
            await self.save()

    async def get_or_create(self, options: SandboxOptions, layer_id: str) -> Record:
        """Return the record; store a new one, with *options* and *layer_id*, if there is none."""

        async def create() -> Record:
            await self._load()
            if self._gone:
                self.record = await self._store(self._fresh(options, layer_id))
            return self.existing

        return await self._again(create)

    async def create(self, options: SandboxOptions, layer_id: str, **fields: Any) -> Record:
        """Store the record of a sandbox that has files already; nobody saw it before.

        Raises:
            SandboxAlreadyExistsError: there is one.
        """

        async def create() -> Record:
            await self._load()
            if not self._gone:
                raise SandboxAlreadyExistsError(
                    f"there is a sandbox {self.id!r} already",
                    context={"namespace": self.namespace, "sandbox": self.id},
                    suggestion="use another id, or destroy it first",
                )
            fresh = msgspec.structs.replace(self._fresh(options, layer_id), **fields)
            self.record = await self._store(fresh)
            return self.record

        return await self._alone(create)

    async def start(self, host_ref: str, layer_id: str) -> Record:
        """Record that a start begins: one write, also where there is no record yet."""

        async def begin() -> Record:
            await self._load()
            record = self._fresh(SandboxOptions(), layer_id) if self._gone else self.existing
            self._refuse_live(record)
            return await self._update(
                record,
                {
                    "state": State.STARTING,
                    "host_ref": host_ref,
                    "generation": record.generation + 1,
                },
            )

        return await self._alone(begin)

    async def assign(
        self, host_ref: str, layer_id: str, decide: Callable[[Record], InForce]
    ) -> Record:
        """Give a sandbox that never ran a warm container: one write, in which the pool loses it.

        Args:
            decide: returns what is in force, for the record as it is.

        Raises:
            ContainerNotReadyError: somebody else took the container, or changed the record.
        """

        async def assign() -> Record:
            await self._load()
            record = self._fresh(SandboxOptions(), layer_id) if self._gone else self.existing
            self._refuse_live(record)
            now = rules.now()
            changes = {
                "state": State.RUNNING,
                "host_ref": host_ref,
                "layer_id": layer_id,
                "generation": record.generation + 1,
                "in_force": decide(record),
                "started_at": now,
                "last_activity_at": now,
                "exit_code": None,
            }
            return await self._update(record, changes, taking=host_ref)

        return await self._alone(assign)

    async def save(self, **changes: Any) -> Record:
        """Replace fields of the record; the result is durable.

        Raises:
            ContainerNotReadyError: another engine changed it first.
            SandboxDestroyedError: there is only a tombstone, which stays as it is.
        """

        async def update() -> Record:
            return await self._update(self.existing, changes)

        return await self._alone(update)

    async def change(self, decide: Callable[[Record], Mapping[str, Any]]) -> Record:
        """Replace the fields that *decide* returns for the record as it is now.

        Of a sandbox that was destroyed meanwhile nothing changes.

        Raises:
            ContainerNotReadyError: another engine changed it first.
        """

        async def update() -> Record:
            await self._load()
            if self.record and self._gone:
                return self.record
            changes = decide(self.existing)
            return await self._update(self.existing, changes) if changes else self.existing

        return await self._again(update)

    async def _update(
        self, old: Record, changes: Mapping[str, Any], *, taking: str | None = None
    ) -> Record:
        state = changes.get("state", old.state)
        if not states.may_follow(old.state, state):
            raise AssertionError(f"{old.state} cannot become {state}")
        entering = {} if state is old.state else {"state_changed_at": rules.now(), "reason": None}
        new = msgspec.structs.replace(
            old, **entering | dict(changes) | {"actor": self._directory.actor}
        )
        self.record = await self._store(new, taking)
        return self.record

    async def settle(self) -> None:
        """Wait until no write is under way."""
        async with self._lock:
            pass

    async def _again(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do *work*, which decides by what it finds, until no other engine is quicker."""
        for _ in range(TRIES):
            try:
                return await self._alone(work)
            except ContainerNotReadyError as error:
                if not outpaced(error):
                    raise
        return await self._alone(work)

    async def _alone(self, work: Callable[[], Awaitable[T]]) -> T:
        async def run() -> T:
            async with self._lock:
                return await work()

        return await asyncio.shield(asyncio.create_task(run()))

    async def _load(self) -> None:
        if not self._loaded or self._gone:  # a tombstone may have been forgotten since
            self.record = await self._directory.get(self.namespace, self.id)
            self._loaded = True

    @property
    def _gone(self) -> bool:
        return self.record is None or self.record.state is State.DESTROYED

    def _fresh(self, options: SandboxOptions, layer_id: str) -> Record:
        """Return the record of a new life of the id; version and generation of a tombstone go on."""
        now, tombstone = rules.now(), self.record
        return Record(
            namespace=self.namespace,
            id=self.id,
            state=State.CREATED,
            layer_id=layer_id,
            created_at=now,
            state_changed_at=now,
            wanted=options,
            expires_at=rules.expiry(now, options),
            version=tombstone.version if tombstone else 0,
            generation=tombstone.generation if tombstone else 0,
        )

    async def _store(self, new: Record, taking: str | None = None) -> Record:
        write = self._directory.update if new.version else self._directory.create
        return await self._write(write(new, taking=taking))

    async def _write(self, write: Awaitable[Record]) -> Record:
        try:
            return await write
        except ConflictError as error:
            self._loaded = False
            raise self.outpaced() from error

    def _refuse_live(self, record: Record) -> None:
        """Refuse to start what another engine has started meanwhile."""
        if record.live:
            raise self.outpaced()

    def outpaced(self) -> ContainerNotReadyError:
        """Return what a caller is told who has to look again."""
        return ContainerNotReadyError(
            f"sandbox {self.id!r} was changed by another engine",
            context={"reason": CONFLICT},
            retry_after=0.1,
        )
