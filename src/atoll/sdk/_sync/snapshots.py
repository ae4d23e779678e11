"""Snapshots of a sandbox's files, forks of it, and ways back."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Generic, Self, TypeVar

from atoll.errors import SandboxError, from_wire
from atoll.sdk import _io, _arguments, _shared
from atoll.sdk._sync.files import Content
from atoll.sdk._sync.target import Address, Target
from atoll.sdk._sync.transport import Body, ConnectionLostError, Transport, chunks_of
from atoll.wire import ops
from atoll.wire import snapshots as wire
from atoll.wire.base import Duration, Empty
from atoll.wire.sandbox import SandboxInfo
from atoll.wire.snapshots import (
    DiffRequest,
    Fork,
    ListSnapshots,
    RestoreSnapshot,
    Snapshot,
    SnapshotPage,
    TakeSnapshot,
)

TargetT = TypeVar("TargetT", bound=Target)

_PATIENCE = 600.0
"""Seconds for an answer: without btrfs on the host a copy takes as long as its bytes do."""


class Forks(list[TargetT], Generic[TargetT]):
    """The new sandboxes. `errors`: id → why there is none, for those that could not be made."""

    def __init__(self, made: list[TargetT], errors: dict[str, SandboxError]) -> None:
        super().__init__(made)
        self.errors = errors


class Diff:
    """What changed, in order of path. `truncated`: there is more than is told."""

    def __init__(self, told: wire.Diff, address: Address, request: DiffRequest) -> None:
        self.changes = told.changes
        self.truncated = told.truncated
        self.to_dict = told.to_dict
        self._address = address
        self._request = request

    def __repr__(self) -> str:
        return f"<Diff of {len(self)} changes{', truncated' if self.truncated else ''}>"

    def __iter__(self) -> Iterator[wire.Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def patch(self) -> bytes:
        """Return the changes as a patch for ``git apply`` or ``patch -p1``, as of now.

        Binary files, files of more than 1 MiB, folders and special files are named in lines before
        it, which those programs skip. After 16 MiB or 30 s the rest is only named.

        Raises:
            SnapshotNotFoundError: the snapshot was deleted meanwhile.
        """
        own = self._address
        call = _shared.build_call(ops.PATCH, own.params, self._request)
        try:
            with (
                own.transport.send(call, ready=own.ready) as answer,
                closing(chunks_of(answer)) as chunks,
            ):
                return b"".join(list(chunks))
        except ConnectionLostError as error:
            raise _shared.lost("patch_snapshot", str(error)) from error


class Snapshots(Target):
    """Snapshots, forks, comparisons."""

    def snapshot(
        self,
        name: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        ttl: Duration | None = None,
    ) -> Snapshot:
        """Keep the files as they are now, under an id of their own.

        Processes stand still for some milliseconds and go on. A sandbox that sleeps is not woken.
        The snapshot outlives the sandbox; it ends with `ttl` or `Namespace.delete_snapshot`.

        Args:
            name: for people.
            labels: to look for with `Namespace.snapshots`.
            ttl: when it goes; None: never.

        Raises:
            ValidationFailedError: a name, label or time is malformed.
            SnapshotFailedError: its processes could not be frozen.
            ContainerUnavailableError: the host's disk is too full (reason "capacity").
        """
        request = TakeSnapshot(
            name=name,
            labels=_arguments.mapping("labels", labels),
            ttl_ms=_arguments.lifetime(ttl),
        )
        return self._call(ops.TAKE_SNAPSHOT, request, timeout=_PATIENCE)

    def fork(
        self,
        id: str | None = None,
        *,
        count: int = 1,
        from_snapshot: Snapshot | str | None = None,
    ) -> Forks[Self]:
        """Make new sandboxes with the files of this one: copy-on-write, whatever their size.

        They have its options and variables, and nothing else of it: no process, session, token or
        exposed port. They sleep until they are used.

        Args:
            id: of the new sandbox; with a `count` above 1 they are called ``{id}-1`` and so on.
                None: random ones that begin with the id of this one.
            count: how many, up to 1,000.
            from_snapshot: begin with the files of this snapshot instead.

        Returns:
            The new sandboxes, and in `errors` why some could not be made.

        Raises:
            SandboxError: none could be made; of several reasons the first.
        """
        request = Fork(id=id, count=count, from_snapshot=_id(from_snapshot))
        answer = self._call(ops.FORK, request, timeout=_PATIENCE)
        errors = {each.id: from_wire(each.error) for each in answer.forks if each.error}
        made = [self._sibling(each.id) for each in answer.forks if not each.error]
        if errors and not made:
            raise next(iter(errors.values()))
        return Forks(made, errors)

    def _sibling(self, id: str) -> Self:
        own = self._address
        return type(self)(Address(own.transport, own.namespace, id, ready=own.ready))

    def restore(self, snapshot: Snapshot | str) -> SandboxInfo:
        """Go back to the files of a snapshot of this namespace, also one of another sandbox.

        All processes end; the next call wakes the sandbox as a new start (`generation` + 1).
        Session state, variables and options stay.

        Raises:
            SnapshotNotFoundError: there is no such snapshot.
            ContainerUnavailableError: the host's disk is too full (reason "capacity").
        """
        request = RestoreSnapshot(snapshot=_id(snapshot) or "")
        return self._call(ops.RESTORE, request, timeout=_PATIENCE)

    def diff(self, since: Snapshot | str) -> Diff:
        """Return which paths differ from a snapshot; wakes nothing.

        A folder that was deleted is one entry. Files are compared by inode, time of change, size,
        mode and owner.

        Raises:
            SnapshotNotFoundError: there is no such snapshot.
            SandboxNotFoundError: the sandbox has no files yet.
            ValidationFailedError: the snapshot is of another image than the sandbox.
        """
        request = DiffRequest(since=_id(since) or "")
        told = self._call(ops.DIFF, request, timeout=_PATIENCE)
        return Diff(told, self._address, request)


class SnapshotShelf:
    """The snapshots of a namespace."""

    transport: Transport
    name: str

    def snapshots(
        self,
        *,
        sandbox: str | None = None,
        labels: Mapping[str, str] | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> SnapshotPage:
        """Return one page of the snapshots in this namespace, the oldest first.

        Args:
            sandbox: only those of this sandbox.
            labels: only those that have all of these.
            cursor: `cursor` of the page before.
            limit: most entries of this page.
        """
        wanted = _arguments.mapping("labels", labels)
        request = ListSnapshots(
            sandbox=sandbox,
            labels=",".join(f"{key}={value}" for key, value in wanted.items()) or None,
            cursor=cursor,
            limit=limit,
        )
        return self.transport.call(ops.LIST_SNAPSHOTS, {"namespace": self.name}, request)

    def get_snapshot(self, id: str) -> Snapshot:
        """Return a snapshot.

        Raises:
            SnapshotNotFoundError: there is none of this id.
        """
        place = {"namespace": self.name, "snapshot": id}
        return self.transport.call(ops.GET_SNAPSHOT, place, Empty())

    def export_snapshot(self, snapshot: Snapshot | str) -> _io.Stream[bytes]:
        """Yield a snapshot as one file, for `import_snapshot` here or at another engine.

        It holds what the sandbox had changed of its image, compressed, and name and labels; no
        options, variables or secrets beside those in files.

        Raises:
            SnapshotNotFoundError: there is no such snapshot.
        """
        place = {"namespace": self.name, "snapshot": _id(snapshot) or ""}
        call = _shared.build_call(ops.EXPORT_SNAPSHOT, place, Empty())
        try:
            with self.transport.send(call) as answer, closing(chunks_of(answer)) as chunks:
                for chunk in chunks:
                    yield chunk
        except ConnectionLostError as error:
            raise _shared.lost("export_snapshot", str(error)) from error

    def import_snapshot(self, content: Content) -> Snapshot:
        """Take in a snapshot that `export_snapshot` gave; it gets a new id.

        Args:
            content: bytes, a file object, or an iterable, as of `export_snapshot`.

        Raises:
            ValidationFailedError: it is no exported snapshot, was cut or changed.
            ImageNotFoundError: the image it belongs to is not at this engine; `context` names it.
            DiskQuotaExceededError: its files do not fit into the disk of its instance type.
        """
        _arguments.check_content("content", content)
        if isinstance(content, str | bytes | bytearray | memoryview):
            return self._import(_arguments.encode_content(content, None))
        return self._import(_io.pieces(content))

    def _import(self, content: Body) -> Snapshot:
        place = {"namespace": self.name}
        return self.transport.call(
            ops.IMPORT_SNAPSHOT, place, Empty(), content=content, timeout=_PATIENCE
        )

    def delete_snapshot(self, snapshot: Snapshot | str) -> None:
        """Forget a snapshot; sandboxes that began as it keep their files. Idempotent."""
        place = {"namespace": self.name, "snapshot": _id(snapshot) or ""}
        self.transport.call(ops.DELETE_SNAPSHOT, place, Empty())


def _id(snapshot: Snapshot | str | None) -> str | None:
    return snapshot.id if isinstance(snapshot, Snapshot) else snapshot
