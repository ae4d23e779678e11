"""The record of one sandbox in memory, and its compare-and-set writes, one at a time.

A write runs to its end even when its caller is cancelled: memory and store never differ.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from atoll.engine import record as rules
from atoll.engine import states
from atoll.engine.directory import ConflictError, Directory
from atoll.engine.record import Record
from atoll.errors import ContainerNotReadyError
from atoll.wire.sandbox import SandboxOptions, State

T = TypeVar("T")


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

    @property
    def existing(self) -> Record:
        """The record of a sandbox that is known to have one."""
        if self.record is None:
            raise AssertionError("only a stored sandbox has transitions")
        return self.record

    async def load(self) -> Record | None:
        """Return the record; None when there is none or only a tombstone."""
        if not self._loaded:
            await self._alone(self._load)
        return None if self.record is None or self.record.state is State.DESTROYED else self.record

    def adopt(self, record: Record) -> None:
        """Take over a record that was just read."""
        self.record, self._loaded = record, True

    async def get_or_create(self, options: SandboxOptions, layer_id: str) -> Record:
        """Return the record; store a new one, with *options* and *layer_id*, if there is none."""

        async def create() -> Record:
            await self._load()
            if self.record is None or self.record.state is State.DESTROYED:
                self.record = await self._create(options, layer_id)
            return self.record

        return await self._alone(create)

    async def save(self, **changes: Any) -> Record:
        """Replace fields of the record; the result is durable.

        Raises:
            ContainerNotReadyError: another engine changed it first.
        """
        return await self.change(lambda _: changes)

    async def change(self, decide: Callable[[Record], Mapping[str, Any]]) -> Record:
        """Replace the fields that *decide* returns for the record as it is now; raise as `save`."""

        async def update() -> Record:
            old = self.existing
            changes = dict(decide(old))
            if not changes:
                return old
            state = changes.get("state", old.state)
            if not states.may_follow(old.state, state):
                raise AssertionError(f"{old.state} cannot become {state}")
            if state is not old.state:
                changes["state_changed_at"] = rules.now()
            new = msgspec.structs.replace(old, **changes)
            self.record = await self._write(self._directory.update(new))
            return self.record

        return await self._alone(update)

    async def settle(self) -> None:
        """Wait until no write is under way."""
        async with self._lock:
            pass

    async def _alone(self, work: Callable[[], Awaitable[T]]) -> T:
        async def run() -> T:
            async with self._lock:
                return await work()

        return await asyncio.shield(asyncio.create_task(run()))

    async def _load(self) -> None:
        if not self._loaded:
            self.record = await self._directory.get(self.namespace, self.id)
            self._loaded = True

    async def _create(self, options: SandboxOptions, layer_id: str) -> Record:
        now, tombstone = rules.now(), self.record
        fresh = Record(
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
        directory = self._directory
        return await self._write(directory.update(fresh) if tombstone else directory.create(fresh))

    async def _write(self, write: Awaitable[Record]) -> Record:
        try:
            return await write
        except ConflictError as error:
            self._loaded = False
            raise ContainerNotReadyError(
                f"sandbox {self.id!r} was changed by another engine", retry_after=0.1
            ) from error
