"""Sandboxes that begin as a snapshot: forks, and a sandbox that goes back to one.

A fork is a sandbox of its own with a copy of the files: its options and variables are those of its
origin, its identity, processes, sessions and tokens are not. It is there, in one write, when its
files are. Going back is one write too, of the name of the layer: before it the sandbox has its old
files, after it those of the snapshot.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from atoll.engine.lifecycle import ending
from atoll.engine.shared import Shared
from atoll.engine.storage.kept import Kept
from atoll.engine.storage.snapshots import Snapshots
from atoll.engine.store.record import RESTORED, InForce, Record
from atoll.errors import SandboxError, ValidationFailedError
from atoll.wire.sandbox import SandboxOptions, State
from atoll.wire.snapshots import Fork, Forked, ForkResult, TakeSnapshot

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox

MAX_COUNT = 1_000
"""Forks of one call."""

_AT_ONCE = 16  # copies under way: the file system makes them one after the other anyway
_ID_PREFIX = 30  # with a dash and 8 more characters an id that can be previewed


class Forks:
    """Makes sandboxes from snapshots.

    Args:
        shared: what all sandboxes of the engine work with.
        snapshots: where they begin.
        lookup: returns the object of a namespace and id.
    """

    def __init__(
        self, shared: Shared, snapshots: Snapshots, lookup: "Callable[[str, str], Sandbox]"
    ) -> None:
        self._shared = shared
        self._snapshots = snapshots
        self._lookup = lookup
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def fork(self, box: "Sandbox", wanted: Fork) -> ForkResult:
        """Make new sandboxes with the files of *box*, or of a snapshot of its namespace.

        One that cannot be made does not keep the others from being made: its error is in its place.

        Raises:
            ValidationFailedError: the number is out of range, or several are to have one id.
            SnapshotNotFoundError: there is no such snapshot.
        """
        ids = _ids(box.id, wanted)
        if wanted.from_snapshot:
            kept = await self._snapshots.get(box.namespace, wanted.from_snapshot)
            return await self._all(box.namespace, ids, kept, kept.snapshot.id, kept.snapshot.id)
        async with self._snapshots.passing(box) as (snapshot, origin):
            kept = self._snapshots.described(snapshot, origin, TakeSnapshot())
            return await self._all(box.namespace, ids, kept, snapshot, origin.snapshot)

    async def _all(
        self, namespace: str, ids: list[str], kept: Kept, files: str, base: str | None
    ) -> ForkResult:
        made = [self._one(namespace, id, kept, files, base) for id in ids]
        return ForkResult(forks=await asyncio.gather(*made))

    async def _one(
        self, namespace: str, id: str, kept: Kept, files: str, base: str | None
    ) -> Forked:
        try:
            async with self._slots:
                box = self._lookup(namespace, id)
                await box.alone("fork", lambda: self._make(box, kept, files, base))
        except SandboxError as error:
            return Forked(id=id, error=error.to_wire())
        return Forked(id=id)

    async def _make(self, box: "Sandbox", kept: Kept, files: str, base: str | None) -> None:
        layer_id = await self._copied(kept, files)
        try:
            await box.entry.create(
                kept.options,
                layer_id,
                state=State.STOPPED,
                env=kept.env,
                egress=kept.egress,
                in_force=kept.in_force,
                snapshot=base,
            )
        except BaseException:
            await self._forget(kept, layer_id)
            raise
        finally:
            self._shared.lifecycle.building.discard(layer_id)
        self._shared.faults.at("fork.recorded")

    async def restore(self, box: "Sandbox", snapshot: str) -> Record:
        """Stop *box* and give it the files of a snapshot of its namespace; it wakes on the next call.

        Session state and variables stay; what ran is forgotten.

        Raises:
            SnapshotNotFoundError: there is no such snapshot.
            ContainerUnavailableError: the host's disk is too full (reason "capacity").
        """
        kept = await self._snapshots.get(box.namespace, snapshot)
        await box.alone("restore", lambda: self._swap(box, kept))
        return box.entry.existing

    async def _swap(self, box: "Sandbox", kept: Kept) -> None:
        await box.entry.get_or_create(SandboxOptions(), self._shared.new_name())
        layer_id = await self._copied(kept, kept.snapshot.id)
        try:
            if box.entry.existing.live:
                await ending.stop(box, RESTORED)
            self._shared.faults.at("restore.stopped")
            before = box.entry.existing
            await box.entry.save(
                state=State.STOPPED,
                reason=RESTORED,
                layer_id=layer_id,
                in_force=_in_force(before, kept),
                wanted=_wanted(before, kept),
                snapshot=kept.snapshot.id,
            )
        except BaseException:
            await self._forget(kept, layer_id)
            raise
        finally:
            self._shared.lifecycle.building.discard(layer_id)
        self._shared.faults.at("restore.recorded")
        await self._shared.processes.forget(before.key, before.layer_id)
        await self._shared.lifecycle.forget_files(before)

    async def _copied(self, kept: Kept, files: str) -> str:
        """Return a new layer; it is named in `building` until a record has it."""
        life, force = self._shared.lifecycle, kept.in_force
        layer_id = self._shared.new_name()
        life.building.add(layer_id)
        try:
            state_dir = self._shared.settings.storage.state_dir
            await life.parts.images.hold(force.digest, layer_id, state_dir)
            await life.parts.layers.snapshots.clone(files, layer_id, force.limits.disk)
            life.faults.at("copy.made")
        except BaseException:
            life.building.discard(layer_id)
            await life.parts.images.release(force.digest, layer_id)
            raise
        return layer_id

    async def _forget(self, kept: Kept, layer_id: str) -> None:
        await self._shared.lifecycle.parts.layers.delete(layer_id)
        await self._shared.lifecycle.parts.images.release(kept.in_force.digest, layer_id)


def _ids(origin: str, wanted: Fork) -> list[str]:
    """Return the ids of the new sandboxes: random ones unless *wanted* names them."""
    if not 1 <= wanted.count <= MAX_COUNT:
        raise ValidationFailedError(
            f"{wanted.count} forks cannot be made in one call",
            context={"field": "count"},
            suggestion=f"use 1 to {MAX_COUNT}",
        )
    if wanted.id is None:
        prefix = origin[:_ID_PREFIX].rstrip("-._")
        return [f"{prefix}-{secrets.token_hex(4)}" for _ in range(wanted.count)]
    if wanted.count == 1:
        return [wanted.id]
    return [f"{wanted.id}-{number}" for number in range(1, wanted.count + 1)]


def _in_force(record: Record, kept: Kept) -> InForce:
    """Return what the restored files were made under; sessions know the variables of *record*."""
    now = record.in_force
    return kept.in_force if now is None else msgspec.structs.replace(kept.in_force, env=now.env)


def _wanted(record: Record, kept: Kept) -> SandboxOptions:
    """Return the options with the image of the snapshot: its files belong on no other."""
    if record.in_force and record.in_force.digest == kept.in_force.digest:
        return record.wanted
    return msgspec.structs.replace(record.wanted, image=kept.options.image)
