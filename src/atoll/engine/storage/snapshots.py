"""Snapshots of sandboxes: taken while all processes are frozen for milliseconds, then they go on.

A snapshot is the sandbox's own files and no more: no process, no memory, no session state. Files
come first and the row after them, and a row goes before its files; so whatever a crash leaves is
files without a row, which the next sweep removes. A caller is told of a snapshot when both are
there.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
import structlog

from atoll.engine.shared import Shared
from atoll.engine.storage.kept import Kept, find
from atoll.engine.store import record as rules
from atoll.engine.store.record import InForce, Record
from atoll.engine.store.shelf import Shelf
from atoll.errors import (
    SandboxDestroyedError,
    SandboxNotFoundError,
    SnapshotFailedError,
    ValidationFailedError,
)
from atoll.storage import diff, patch
from atoll.wire import names
from atoll.wire.sandbox import SandboxOptions, State
from atoll.wire.snapshots import (
    Change,
    Diff,
    ListSnapshots,
    Snapshot,
    SnapshotPage,
    TakeSnapshot,
)

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox

log = structlog.get_logger(__name__)

T = TypeVar("T")

MAX_NAME = 200
"""Characters of a snapshot's name."""
MAX_CHANGES = 50_000
"""Entries of one comparison."""
MAX_PATHS = 8 << 20
"""Characters of the paths in one comparison: code inside chooses how long they are."""

_AT_ONCE = 2  # comparisons: each keeps one of the engine's few threads busy


class Snapshots:
    """The snapshots of all namespaces.

    Args:
        shared: what all sandboxes of the engine work with.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.shelf = Shelf(shared.store, "snapshots", Kept)
        self._kept = shared.lifecycle.parts.layers.snapshots
        self._making: set[str] = set()  # no row tells of these yet
        self._comparing = asyncio.Semaphore(_AT_ONCE)

    async def take(self, box: "Sandbox", wanted: TakeSnapshot) -> Snapshot:
        """Keep the files of *box* as they are now; one that never ran is started first.

        Raises:
            ValidationFailedError: a name or label is malformed.
            SnapshotFailedError: its processes could not be frozen.
            ContainerUnavailableError: the host's disk is too full (reason "capacity").
        """
        check_names(wanted)
        async with self._taken(box) as (id, record):
            kept = await self._recorded(self.described(id, record, wanted))
        await box.entry.change(lambda old: _based_on(old, record.layer_id, id))
        return kept.snapshot

    async def _recorded(self, kept: Kept) -> Kept:
        """Store the row of files that are kept; return it with their size."""
        one, faults = kept.snapshot, self._shared.faults
        faults.at("snapshot.kept")
        sized = msgspec.structs.replace(one, size=await self._kept.usage(one.id))
        kept = msgspec.structs.replace(kept, snapshot=sized)
        state_dir = self._shared.settings.storage.state_dir
        await self._shared.lifecycle.parts.images.hold(kept.in_force.digest, one.id, state_dir)
        faults.at("snapshot.held")
        await self.shelf.add(one.namespace, one.id, one.sandbox, one.expires_at, kept)
        faults.at("snapshot.recorded")
        return kept

    async def made(self, kept: Kept, fill: Callable[[str], Awaitable[None]]) -> Snapshot:
        """Store a snapshot whose files *fill* keeps under its id; of a failure nothing is left."""
        id = kept.snapshot.id
        self._making.add(id)
        try:
            await fill(id)
            return (await self._recorded(kept)).snapshot
        except BaseException:
            await self._kept.delete(id)
            raise
        finally:
            self._making.discard(id)

    def described(self, id: str, record: Record, wanted: TakeSnapshot) -> Kept:
        """Return what is kept of *record* beside its files."""
        if record.in_force is None:
            raise AssertionError("what has files was in force once")
        now = rules.now()
        ttl = None if wanted.ttl_ms is None else timedelta(milliseconds=wanted.ttl_ms)
        told = Snapshot(
            id=id,
            namespace=record.namespace,
            sandbox=record.id,
            name=wanted.name,
            labels=wanted.labels,
            created_at=now,
            parent=record.snapshot,
            expires_at=None if ttl is None else now + ttl,
            image=record.in_force.image,
        )
        return Kept(
            snapshot=told,
            options=record.wanted,
            env=record.env,
            egress=record.egress.fresh(),
            in_force=record.in_force,
        )

    @asynccontextmanager
    async def _taken(self, box: "Sandbox") -> AsyncIterator[tuple[str, Record]]:
        """Keep the files; they go again when what is done with them fails."""
        id = str(uuid.uuid4())
        self._making.add(id)
        try:
            yield id, await self._freeze_and_keep(box, id)
        except BaseException:
            await self._kept.delete(id)
            raise
        finally:
            self._making.discard(id)

    async def _freeze_and_keep(self, box: "Sandbox", id: str) -> Record:
        if (record := await box.load()) is None or record.in_force is None:
            await box.ensure_running()
        found: list[Record] = []

        async def keep() -> None:
            record = _with_files(box)
            endpoint = box.endpoint if box.is_in(State.RUNNING) else None
            try:
                if endpoint:
                    await endpoint.runtime.pause(endpoint.host_ref)
                    self._shared.faults.at("snapshot.frozen")
                await self._kept.take(record.layer_id, id)
            except TimeoutError as error:
                raise SnapshotFailedError(
                    "the sandbox's processes could not be frozen",
                    retry_after=1.0,
                    suggestion="try again; a process may hang in the kernel",
                ) from error
            finally:
                if endpoint:
                    await endpoint.runtime.resume(endpoint.host_ref)
            found.append(record)

        await box.alone("snapshot", keep)
        return found[0]

    @asynccontextmanager
    async def passing(self, box: "Sandbox") -> AsyncIterator[tuple[str, Record]]:
        """Have a snapshot of *box* that nobody is told of, for as long as it is needed.

        Yields:
            Its id, and the record of *box* when it was taken.
        """
        id = str(uuid.uuid4())
        self._making.add(id)
        try:
            yield id, await self._freeze_and_keep(box, id)
        finally:
            await self._kept.delete(id)
            self._making.discard(id)

    async def get(self, namespace: str, id: str) -> Kept:
        """Return a snapshot of a namespace.

        Raises:
            SnapshotNotFoundError: there is none, or its time is over.
        """
        return await find(self.shelf, namespace, id)

    async def list(
        self, namespace: str, wanted: ListSnapshots, labels: Mapping[str, str]
    ) -> SnapshotPage:
        """Return one page of a namespace's snapshots, the oldest first."""

        def accept(kept: Kept) -> bool:
            own = kept.snapshot.labels
            return all(own.get(name) == value for name, value in labels.items())

        page = await self.shelf.page(
            namespace,
            sandbox=wanted.sandbox,
            cursor=wanted.cursor,
            limit=wanted.limit,
            accept=accept,
        )
        return SnapshotPage(snapshots=[k.snapshot for k in page.entries], cursor=page.cursor)

    async def delete(self, namespace: str, id: str) -> None:
        """Forget a snapshot. Sandboxes that began as it keep their files. Idempotent."""
        if await self.shelf.get(namespace, id):
            await self._remove(id)

    async def diff(self, box: "Sandbox", since: str) -> Diff:
        """Return what changed in *box* since a snapshot was taken.

        Raises:
            SnapshotNotFoundError: there is no such snapshot.
            SandboxNotFoundError: there is no such sandbox.
            ValidationFailedError: the snapshot is of another image.
            FilesystemError: folders are nested too deep, or hold too much, to be compared.
        """

        def compare(old: Path, new: Path, lowers: Sequence[Path]) -> Diff:
            return told(diff.changes(old, new, lowers))

        return await self._compared(box, since, compare)

    async def patch(self, box: "Sandbox", since: str) -> tuple[bytes, bool]:
        """Return what changed as a patch, and whether all of it is told; raise as `diff`."""

        def compare(old: Path, new: Path, lowers: Sequence[Path]) -> tuple[bytes, bool]:
            return patch.write(diff.changes(old, new, lowers), old, new, lowers)

        return await self._compared(box, since, compare)

    async def _compared(
        self, box: "Sandbox", since: str, compare: Callable[[Path, Path, Sequence[Path]], T]
    ) -> T:
        before = await self.get(box.namespace, since)
        record = await box.load()
        if record is None or record.in_force is None:
            raise SandboxNotFoundError(f"sandbox {box.id!r} has no files to compare")
        _check_same_image(before.in_force, record.in_force)
        images = self._shared.lifecycle.parts.images
        lowers = (await images.obtain(record.in_force.digest)).layers
        async with self._comparing, self.passing(box) as (now, _):
            folders = [await self._kept.attach(id) for id in (before.snapshot.id, now)]
            old, new = (folder / "upper" for folder in folders)
            return await asyncio.to_thread(compare, old, new, lowers)

    async def tidy(self) -> None:
        """Remove snapshots whose time is over, and files that no row tells of."""
        rows = await self.shelf.ends()
        now = rules.now().timestamp()
        for id, ends in rows.items():
            if ends is not None and ends <= now:
                log.info("a snapshot's time is over", snapshot=id)
                await self._remove(id)
        for id in await self.orphans():
            log.info("removing an orphaned snapshot", snapshot=id)
            await self._kept.delete(id)

    async def orphans(self) -> set[str]:
        """Return the snapshots that are stored and have no row, but for those being made."""
        stored, making = set(await self._kept.list()), set(self._making)
        return stored - making - (await self.shelf.ends()).keys()

    async def _remove(self, id: str) -> None:
        kept = await self.shelf.find(id)
        await self.shelf.delete(id)
        self._shared.faults.at("snapshot.forgotten")
        await self._kept.delete(id)
        if kept:
            await self._shared.lifecycle.parts.images.release(kept.in_force.digest, id)


def _with_files(box: "Sandbox") -> Record:
    """Return the record of a sandbox that ran; it may have begun a new life since.

    Raises:
        SandboxDestroyedError: its files are gone.
    """
    record = box.entry.existing
    if record.in_force is None:
        raise SandboxDestroyedError(
            f"sandbox {box.id!r} was destroyed meanwhile", context={"sandbox": box.id}
        )
    return record


def check_names(wanted: TakeSnapshot) -> None:
    """Refuse names and labels that could not be shown or looked for.

    Raises:
        ValidationFailedError: one is too long or has characters that have a meaning in a filter.
    """
    if len(wanted.name or "") > MAX_NAME or not (wanted.name or "x").isprintable():
        raise ValidationFailedError(
            f"a name is at most {MAX_NAME} printable characters", context={"field": "name"}
        )
    if wanted.ttl_ms is not None and not 0 < wanted.ttl_ms <= rules.MAX_DURATION:
        raise ValidationFailedError(
            "a snapshot lives some time, and at most 100 years", context={"field": "ttl"}
        )
    rules.check_options(SandboxOptions(labels=wanted.labels), {})


def _based_on(record: Record, layer_id: str, snapshot: str) -> dict[str, str]:
    return {"snapshot": snapshot} if record.layer_id == layer_id else {}


def _check_same_image(before: InForce, now: InForce) -> None:
    """Refuse to compare what differs from one image with what differs from another."""
    if before.digest != now.digest:
        raise ValidationFailedError(
            f"the snapshot is of image {before.image}, the sandbox's files are of {now.image}",
            context={"field": "since", "snapshot": before.digest, "sandbox": now.digest},
            suggestion="compare with a snapshot that was taken since the image was changed",
        )


def told(found: Iterable[diff.Change]) -> Diff:
    """Return what is told of the changes *found*: as many as an answer may hold."""
    changes: list[Change] = []
    length = 0
    for change in found:
        length += len(change.path)
        if len(changes) == MAX_CHANGES or length > MAX_PATHS:
            return Diff(changes=changes, truncated=True)
        changes.append(
            Change(path=_text(change.path), kind=change.kind, type=change.type, size=change.size)
        )
    return Diff(changes=changes, truncated=False)


def _text(path: str) -> str:
    return names.to_text(os.fsencode(path))
