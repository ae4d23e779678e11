"""Buckets mounted in sandboxes: remembered by the store, served by clients that outlive the engine.

A row comes first and goes last: whatever a crash leaves, the row says what should be, and the next
look makes it so. Rows hold the credentials, since a sandbox that wakes needs them again and nobody
is there to ask; the store is a file of mode 0600 in a directory of mode 0700. A mount that cannot
be brought back on a wake does not keep the sandbox from starting: it is told by `listing`.
"""

import asyncio
import secrets
import socket
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec
import structlog

from atoll.engine.lifecycle.sequence import Lifecycle
from atoll.engine.lifecycle.steps import BUCKETS
from atoll.engine.link.link import Endpoint, LinkError
from atoll.engine.storage.local_buckets import LocalBuckets
from atoll.engine.storage.sources import resolved
from atoll.engine.store import record as rules
from atoll.engine.store.store import Store
from atoll.errors import (
    BucketMountError,
    ContainerNotReadyError,
    InvalidMountConfigError,
    MountNotFoundError,
    NotSupportedByRuntimeError,
    SandboxError,
)
from atoll.host import grafts
from atoll.network import dial
from atoll.storage.buckets import client, fuse, options, probe, tools
from atoll.storage.buckets.confinement import Place
from atoll.storage.buckets.options import LOCAL, Credentials, Source
from atoll.wire.mounts import BucketMount, BucketMounts, MountBucket
from atoll.wire.sandbox import State

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox

log = structlog.get_logger(__name__)

ANSWER = 10.0
"""Seconds a client has to answer for the first time: a wake waits so long for an endpoint that is
silent, since commands that ran before would write to the folder beneath."""

MAX_MOUNTS = 16
"""Mounts of one sandbox: each is a process on the host."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A mount as the store has it."""

    id: str
    path: str
    source: Source
    credentials: Credentials | None  # None: a folder of the host
    created_at: datetime

    @property
    def name(self) -> str:
        """What it is called in tables of mounts."""
        return f"atoll-{self.id}"


class Mounts:
    """The buckets of all sandboxes.

    Args:
        store: an open store.
        lifecycle: where starts have their directories and networks.
        live: the sandboxes that have a container.
    """

    def __init__(
        self, store: Store, lifecycle: Lifecycle, live: "dict[tuple[str, str], Sandbox]"
    ) -> None:
        self._store = store
        self._life = lifecycle
        self._live = live
        self.local = LocalBuckets(lifecycle.settings.storage.local_buckets)
        self._locks: WeakKeyDictionary[Sandbox, asyncio.Lock] = WeakKeyDictionary()
        self._problems: dict[str, str] = {}

    async def mount(self, box: "Sandbox", wanted: MountBucket) -> BucketMount:
        """Mount a bucket in *box*, which is woken for it.

        Raises:
            InvalidMountConfigError: a field is wrong, or something is at the path.
            MissingCredentialsError: none were given.
            SecurityError: a link is on the way to the path.
            BucketMountError: the bucket cannot be read; the message is its server's.
            NotSupportedByRuntimeError: the runtime has no mounts.
            RuntimeNotAvailableError: a program is missing on the host.
        """
        path = options.mount_path(wanted.path)
        source, credentials = resolved(wanted, self._life.settings.storage, self.local)
        async with box.use() as endpoint, self._lock(box):
            if endpoint.runtime.level != "container":
                raise NotSupportedByRuntimeError(
                    f"buckets cannot be mounted at level {endpoint.runtime.level!r}"
                )
            self._tool(source)
            await asyncio.to_thread(grafts.check, await self._pid(endpoint), path)
            if len(await self._rows(box)) >= MAX_MOUNTS:
                raise InvalidMountConfigError(f"a sandbox has at most {MAX_MOUNTS} mounts")
            await self._ask(source, credentials, endpoint)
            kept = Kept(
                id=secrets.token_hex(6),
                path=path,
                source=source,
                credentials=credentials,
                created_at=rules.now(),
            )
            await self._add(box, kept)
            self._life.faults.at("mount.recorded")
            try:
                await self._serve(box, endpoint, kept)
            except BaseException:
                await self._remove(kept)
                raise
        return self._told(kept, active=True)

    async def unmount(self, box: "Sandbox", path: str) -> None:
        """End a mount. One of a sandbox that sleeps is forgotten; nothing is woken.

        Raises:
            MountNotFoundError: nothing is mounted there.
            BucketUnmountError: it is in use; nothing was changed.
        """
        path = options.mount_path(path)
        async with self._lock(box):
            kept = next((row for row in await self._rows(box) if row.path == path), None)
            if kept is None:
                raise MountNotFoundError(f"no bucket is mounted at {path}", context={"path": path})
            if endpoint := await _started(box):
                await grafts.detach(await self._pid(endpoint), kept.name)
                self._life.faults.at("unmount.detached")
                await client.stop(self._folder(endpoint, kept))
                self._life.faults.at("unmount.stopped")
                await self._drop_cache(kept)
            await self._remove(kept)

    async def listing(self, box: "Sandbox") -> BucketMounts:
        """Return the mounts of *box*; nothing is woken."""
        endpoint, found = await _started(box), []
        for kept in await self._rows(box):
            active = endpoint is not None and await self._active(endpoint, kept)
            found.append(self._told(kept, active=active))
        return BucketMounts(mounts=found)

    async def woken(self, box: "Sandbox", endpoint: Endpoint) -> None:
        """Bring the mounts of a sandbox back that has just started."""
        async with self._lock(box):
            rows = await self._rows(box)
            await asyncio.gather(*(self._bring_back(box, endpoint, kept) for kept in rows))

    async def tend(self) -> None:
        """Serve again what is not served, in all sandboxes that are awake."""
        rows = await self._store.read("SELECT DISTINCT namespace, sandbox FROM mounts", ())
        boxes = [self._live[key] for key in rows if key in self._live]
        await asyncio.gather(*(self._tend(box) for box in boxes))

    async def _tend(self, box: "Sandbox") -> None:
        async with self._lock(box):
            if (endpoint := await box.awake()) is None:
                return
            for kept in await self._rows(box):
                client.trim_log(self._folder(endpoint, kept))
                if not await self._active(endpoint, kept):
                    log.warning("a bucket is not served", sandbox=box.id, path=kept.path)
                    await self._bring_back(box, endpoint, kept)

    async def forget(self, key: tuple[str, str]) -> None:
        """Forget the mounts of a sandbox that is destroyed; clients end with its container."""
        await self._store.execute("DELETE FROM mounts WHERE namespace = ? AND sandbox = ?", key)

    async def _active(self, endpoint: Endpoint, kept: Kept) -> bool:
        found = await endpoint.runtime.find(endpoint.host_ref)
        folder = self._folder(endpoint, kept)
        if found is None or not client.alive(folder):
            return False
        client.forget_secret(folder)  # of an engine that died in between
        return any(entry.source == kept.name for entry in grafts.mounts_of(found.pid))

    async def _bring_back(self, box: "Sandbox", endpoint: Endpoint, kept: Kept) -> None:
        try:
            await grafts.detach(await self._pid(endpoint), kept.name, force=True)
            await client.stop(self._folder(endpoint, kept), 0)
            await self._drop_cache(kept)
            await self._serve(box, endpoint, kept)
            self._problems.pop(kept.id, None)
        except (SandboxError, LinkError, OSError) as error:
            self._problems[kept.id] = str(error)
            log.warning("not mounted", sandbox=box.id, path=kept.path, reason=str(error))

    async def _serve(self, box: "Sandbox", endpoint: Endpoint, kept: Kept) -> None:
        """Start a client and move its mount into the sandbox; nothing is left when that fails."""
        header = {"op": "fs.mkdir", "path": kept.path, "recursive": True, "user": "0:0"}
        await endpoint.call(header)
        place = await self._place(box, endpoint, kept)
        tool, read_only = self._tool(kept.source), kept.source.read_only
        system = await asyncio.to_thread(fuse.made, kept.name, read_only=read_only, client=tool)
        try:
            await asyncio.to_thread(
                client.start, tool, kept.source, kept.credentials, place, system.device
            )
            system.close_device()
            self._life.faults.at("mount.served")
            await grafts.attach(await self._pid(endpoint), kept.path, system.mount, ANSWER)
            self._life.faults.at("mount.attached")
            client.forget_secret(place.folder)
        except BaseException as error:
            system.close()
            why = client.failure(place.folder, str(error))
            await client.stop(place.folder, 0)
            await self._drop_cache(kept)
            if isinstance(error, TimeoutError | BucketMountError):
                raise why from error
            raise
        system.close()

    def _tool(self, source: Source) -> str:
        return tools.serving(source, self._life.settings.storage.s3_client)

    async def _place(self, box: "Sandbox", endpoint: Endpoint, kept: Kept) -> Place:
        force, settings = box.entry.existing.in_force, self._life.settings
        if force is None:
            raise ContainerNotReadyError(f"sandbox {box.id!r} has ended", retry_after=0.1)
        files = self._life.run_dir(endpoint.host_ref) / "files" / "resolv.conf"
        netns = await self._netns(kept.source, endpoint)
        nobody = settings.runtime.id_base - 1
        place = Place(
            folder=self._folder(endpoint, kept),
            uid=nobody,
            gid=nobody,
            owner=force.id_base,
            netns=netns,
            resolv_conf=files if netns else Path("/etc/resolv.conf"),
            reserve_mb=settings.storage.reserve_mb,
            cache=await self._cache(box, kept),
        )
        if kept.source.provider != LOCAL:
            return place
        # With its owner's rights and no more, whatever the owner makes of the path meanwhile.
        folder = self.local.find(kept.source.bucket)
        owner = await asyncio.to_thread(folder.stat)
        return msgspec.structs.replace(place, local=folder, uid=owner.st_uid, gid=owner.st_gid)

    async def _cache(self, box: "Sandbox", kept: Kept) -> Path | None:
        """Return where rclone keeps what is not sent yet: as limited as the sandbox's own disk.

        s3fs keeps what it reads, too, and looks at the disk's free space, which knows no quota.
        """
        if self._tool(kept.source) != tools.RCLONE:
            return None
        layers = self._life.parts.layers
        await layers.create(kept.id, box.info(box.entry.existing).limits.disk)
        return await layers.attach(kept.id)

    async def _drop_cache(self, kept: Kept) -> None:
        if await self._life.parts.layers.exists(kept.id):
            await self._life.parts.layers.delete(kept.id)

    async def _netns(self, source: Source, endpoint: Endpoint) -> Path | None:
        """Return the sandbox's network, or None for the host's, where the operator lists it."""
        if source.provider == LOCAL:
            return None
        listed = map(options.origin, self._life.settings.storage.bucket_endpoints)
        if source.endpoint in listed:
            return None
        return (await self._life.parts.networks.acquire(endpoint.host_ref)).netns

    async def _ask(
        self, source: Source, credentials: Credentials | None, endpoint: Endpoint
    ) -> None:
        if credentials is None:
            self.local.find(source.bucket)
        else:
            await probe.ask(source, credentials, await self._connector(source, endpoint))

    async def _connector(self, source: Source, endpoint: Endpoint) -> probe.Connect:
        netns = await self._netns(source, endpoint)

        async def connect(host: str, port: int) -> socket.socket:
            address = await _address(host, port)
            if netns and not ip_address(address).is_global:
                raise InvalidMountConfigError(
                    f"{host} is {address}, which sandboxes may not reach",
                    context={"field": "endpoint"},
                    suggestion="the operator can list it in storage.bucket_endpoints",
                )
            return await dial.connect(netns, address, port)

        return connect

    async def _pid(self, endpoint: Endpoint) -> int:
        found = await endpoint.runtime.find(endpoint.host_ref)
        if found is None:
            raise ContainerNotReadyError("the sandbox has ended", retry_after=0.1)
        return found.pid

    def _folder(self, endpoint: Endpoint, kept: Kept) -> Path:
        return self._life.run_dir(endpoint.host_ref) / BUCKETS / kept.id

    def _lock(self, box: "Sandbox") -> asyncio.Lock:
        return self._locks.setdefault(box, asyncio.Lock())

    def _told(self, kept: Kept, *, active: bool) -> BucketMount:
        source = kept.source
        return BucketMount(
            path=kept.path,
            bucket=source.bucket,
            endpoint=str(source.endpoint),
            provider=source.provider,
            prefix=source.prefix,
            read_only=source.read_only,
            active=active,
            reason=None if active else self._problems.get(kept.id),
            created_at=kept.created_at,
        )

    async def _rows(self, box: "Sandbox") -> list[Kept]:
        rows = await self._store.read(
            "SELECT body FROM mounts WHERE namespace = ? AND sandbox = ? ORDER BY path",
            (box.namespace, box.id),
        )
        return [msgspec.json.decode(row[0], type=Kept) for row in rows]

    async def _add(self, box: "Sandbox", kept: Kept) -> None:
        values = (kept.id, box.namespace, box.id, kept.path, msgspec.json.encode(kept))
        await self._store.execute("INSERT INTO mounts VALUES (?, ?, ?, ?, ?)", values)

    async def _remove(self, kept: Kept) -> None:
        self._problems.pop(kept.id, None)
        await self._store.execute("DELETE FROM mounts WHERE id = ?", (kept.id,))


async def _started(box: "Sandbox") -> Endpoint | None:
    """Return where a sandbox is that is awake or frozen; to its mounts that is the same."""
    endpoint = await box.awake()
    return box.endpoint if endpoint is None and box.is_in(State.FROZEN) else endpoint


async def _address(host: str, port: int) -> str:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    by_family = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)
    return str(by_family[0][4][0])
