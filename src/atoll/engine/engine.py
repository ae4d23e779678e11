"""Wires the engine: the only place that builds components, opens and closes them in order."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

import msgspec
import structlog

from atoll.engine import building, components
from atoll.engine.capacity import node
from atoll.engine.capacity.admission import Admission
from atoll.engine.capacity.diskuse import DiskUse
from atoll.engine.capacity.pool import WarmPool
from atoll.engine.capacity.warm import WarmTable
from atoll.engine.egress import control
from atoll.engine.egress.refusals import Refusals
from atoll.engine.egress.secrets import Secrets
from atoll.engine.leftovers import reaper
from atoll.engine.lifecycle.peers import Alone, Peers
from atoll.engine.lifecycle.sequence import Lifecycle
from atoll.engine.lifecycle.timers import Timers
from atoll.engine.link.link import Endpoint
from atoll.engine.objects.deliveries import Attachment
from atoll.engine.objects.objects import Objects
from atoll.engine.objects.outbound import Outbound
from atoll.engine.parts import Image, Images, Parts
from atoll.engine.ports.ports import Ports
from atoll.engine.ports.tunnels import Tunnels
from atoll.engine.processes.background import Processes
from atoll.engine.processes.logs import ProcessLogs
from atoll.engine.processes.table import ProcessTable
from atoll.engine.sandbox import Sandbox
from atoll.engine.shared import Shared, fresh_name
from atoll.engine.storage.backups import Backups
from atoll.engine.storage.disk import Disk
from atoll.engine.storage.exports import Exports
from atoll.engine.storage.forks import Forks
from atoll.engine.storage.mounts import Mounts
from atoll.engine.storage.room import Room
from atoll.engine.storage.snapshots import Snapshots
from atoll.engine.storage.unpacked import Unpacked
from atoll.engine.storage.vaults import Vaults
from atoll.engine.storage.volume_contents import VolumeContents
from atoll.engine.storage.volumes import Volumes
from atoll.engine.store import record as rules
from atoll.engine.store.audit import AuditLog
from atoll.engine.store.keys import Keys
from atoll.engine.store.record import Record
from atoll.engine.store.store import Store
from atoll.errors import SandboxNotFoundError
from atoll.host import linux
from atoll.images.steps import Progress
from atoll.settings import MIB, Settings
from atoll.wire import ids
from atoll.wire.objects import AttachWorker
from atoll.wire.pool import PoolStats
from atoll.wire.sandbox import NamespaceConfig, SandboxInfo, SandboxPage, State

log = structlog.get_logger(__name__)

MAX_PAGE = 1_000
"""Most entries of one page of a listing."""


class Engine:
    """All sandboxes of one state directory. Make it with `opened`."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        engine_id: str,
        parts: Parts,
        peers: Peers | None = None,
    ) -> None:
        self.settings = settings
        self.store = store
        self.id = engine_id
        self.room = Room.of(settings)
        self.keys = Keys(store)
        self.secrets = Secrets(store, settings.storage.state_dir / "secrets.key")
        self.audit = AuditLog(settings.storage.state_dir / "audit", settings.server.audit_mib * MIB)
        self.namespaces: dict[str, NamespaceConfig] = {}
        self.processes = Processes(
            ProcessTable(store),
            ProcessLogs(settings.storage.state_dir / "logs"),
            settings.processes,
        )
        self.objects = Objects(store, settings, self.sandbox)
        self._configured: dict[str, NamespaceConfig] = {}
        lifecycle = Lifecycle(parts, settings)
        admission = Admission(settings.lifecycle.max_instances, *node.watched(settings))
        self.pool = WarmPool(
            lifecycle,
            WarmTable(store),
            admission,
            self.namespaces,
            partial(fresh_name, engine_id),
        )
        lifecycle.make_room = self.pool.give_way
        self.volumes = Volumes(store, lifecycle, partial(fresh_name, engine_id))
        self.contents = VolumeContents(self.volumes, lifecycle)
        live: dict[tuple[str, str], Sandbox] = {}
        self.ports = Ports(store, live)
        self.mounts = Mounts(store, lifecycle, live)
        self.tunnels = Tunnels(
            store,
            self.ports,
            settings.storage.state_dir / "tunnels",
            engine_id,
            settings.server.tunnel_program,
            lifecycle.faults,
        )
        self._shared = Shared(
            engine_id=engine_id,
            settings=settings,
            store=store,
            lifecycle=lifecycle,
            admission=admission,
            pool=self.pool,
            processes=self.processes,
            objects=self.objects,
            mounts=self.mounts,
            secrets=self.secrets,
            namespaces=self.namespaces,
            ports=self.ports,
            tunnels=self.tunnels,
            volumes=self.volumes,
            live=live,
            peers=peers or Alone(),
        )
        self._refusals = Refusals(store)
        if parts.gateway:
            timeout = settings.network.handler_timeout
            outbound = Outbound(self.objects.registry, self.objects.deliveries, timeout)
            parts.gateway.answer = outbound.handle
            parts.gateway.hear = self._refusals.hear
            parts.gateway.forgotten = self._refusals.forget
        self.snapshots = Snapshots(self._shared)
        self.exports = Exports(self._shared, self.snapshots)
        self.forks = Forks(self._shared, self.snapshots, self.sandbox)
        unpacked = Unpacked(parts.layers, settings, lifecycle.faults)
        self.backups = Backups(store, Vaults.of(settings), unpacked, lifecycle.faults)
        self._disk_use = DiskUse(parts.layers.usage)
        self.disk = Disk(self._shared, self.snapshots, self.backups)
        self._sandboxes: WeakValueDictionary[tuple[str, str], Sandbox] = WeakValueDictionary()
        tidying = (
            self.snapshots.tidy,
            self.backups.tidy,
            self.mounts.tend,
            self.tunnels.tend,
            parts.layers.trim_if_worth,
        )
        self._timers = Timers(self._shared, self.sandbox, tidying)

    @property
    def images(self) -> Images:
        """The images of this host."""
        return self._shared.lifecycle.parts.images

    async def build(self, folder: Path, dockerfile: str, *, tag: str, progress: Progress) -> Image:
        """Build a Dockerfile for a caller; raise as `ImageStore.build`."""
        life, name = self._shared.lifecycle, self._shared.new_name()
        async with building.network(life, name) as network:
            return await self.images.build(
                folder, dockerfile, tag=tag, network=network, progress=progress
            )

    async def recover(self) -> None:
        """Take over what an earlier engine left, remove what nobody owns, start the timers."""
        await self.keys.load()
        await self.secrets.load()
        self.audit.open()
        await self.objects.load()
        self._configured.update(await self.store.namespaces())
        self._set_defaults(*self._configured, *self.objects.registry.all())
        owners: Sequence[Record] = await self.store.owners()
        parts = self._shared.lifecycle.parts
        starts = await self.store.host_refs()
        parts.ids.keep_only(starts)
        await parts.networks.adopt(starts)
        await self.volumes.recover(owners)
        await asyncio.gather(*(self.sandbox(r.namespace, r.id).adopt(r) for r in owners))
        await self.pool.recover()
        await self.processes.sweep(await self.store.layers())
        self.backups.open()
        tidied = await asyncio.gather(
            self.snapshots.tidy(), self.backups.tidy(), return_exceptions=True
        )
        for failure in filter(None, tidied):  # a full disk: the timers try again
            log.warning("not tidied", reason=str(failure))
        removed = await reaper.sweep(self._shared.lifecycle, self.store)
        self._shared.lifecycle.egress.begin_settling()
        log.info("engine open", adopted=len(self._shared.live), removed=removed)
        await self.ports.load()
        await self.tunnels.recover()
        self._timers.open()
        self.pool.open()
        await self.objects.open()

    async def close(self) -> None:
        """Leave everything as it is for the next engine: sandboxes run on."""
        await self._timers.close()
        await self.tunnels.close()
        await self.pool.close()
        await self.objects.close()
        for sandbox in list(self._shared.live.values()):
            sandbox.detach()
            await sandbox.settle()
        await self.processes.watches.close()
        await self.backups.close()
        await self._shared.lifecycle.egress.close()
        await self._refusals.close()
        self.audit.close()

    def pool_stats(self) -> PoolStats:
        """Return what the warm pool has."""
        return self.pool.stats(len(self._shared.live))

    async def sleep_used(self) -> None:
        """Put to sleep what was started or used here: the last user of a private engine has left.

        What it only found running, it leaves to whoever started it.
        """
        await self.tunnels.end_own()
        stops = [sandbox.stop() for sandbox in self._shared.live.values() if sandbox.used]
        for outcome in await asyncio.gather(*stops, return_exceptions=True):
            if isinstance(outcome, Exception):
                log.warning("sandbox did not stop", reason=str(outcome))

    def sandbox(self, namespace: str, id: str) -> Sandbox:
        """Return the object of *namespace* and *id*; nothing is read, made or started.

        Raises:
            InvalidSandboxIdError: *id* breaks the rules.
            ValidationFailedError: *namespace* does.
        """
        ids.check_namespace(namespace)
        ids.check_sandbox_id(id)
        found = self._sandboxes.get((namespace, id))
        if found is None:
            found = self._sandboxes[namespace, id] = Sandbox(namespace, id, self._shared)
        return found

    async def info(self, namespace: str, id: str) -> SandboxInfo:
        """Return what is known of a sandbox.

        Raises:
            SandboxNotFoundError: there is none.
        """
        sandbox = self.sandbox(namespace, id)
        record = await sandbox.load()
        if record is None:
            raise SandboxNotFoundError(
                f"no sandbox {id!r} in namespace {namespace!r}",
                context={"namespace": namespace, "sandbox": id},
                suggestion="any call that needs a running sandbox creates it",
            )
        used = await self._disk_use.of(record.layer_id) if record.in_force else None
        return msgspec.structs.replace(sandbox.info(record), disk_used=used)

    async def list(
        self,
        namespace: str,
        *,
        state: State | None,
        labels: Mapping[str, str],
        cursor: str | None,
        limit: int,
    ) -> SandboxPage:
        """Return one page of a namespace's sandboxes, read from the store only."""
        ids.check_namespace(namespace)
        config = self.namespaces.get(namespace, NamespaceConfig())
        page = await self.store.list(
            namespace,
            state=state,
            labels=labels,
            default_labels=config.labels,
            cursor=cursor,
            limit=min(limit, MAX_PAGE),
        )
        shown = [rules.info(record, config, self.settings) for record in page.records]
        return SandboxPage(sandboxes=shown, cursor=page.cursor)

    async def configure_namespace(self, namespace: str, config: NamespaceConfig) -> None:
        """Set the defaults of a namespace; running sandboxes see them at their next start."""
        ids.check_namespace(namespace)
        rules.check_defaults(config, self.settings.instance_types)
        rules.check_engines(config, self.settings)
        await self.store.configure_namespace(namespace, config)
        self._configured[namespace] = config
        self._set_defaults(namespace)
        await self.apply_policies(namespace)

    def endpoint(self, record: Record) -> Endpoint:
        """Return where the agent of a recorded start is reached."""
        return self._shared.lifecycle.endpoint(record)

    async def refresh_namespace(self, namespace: str) -> None:
        """Follow what another engine stored of a namespace."""
        self._configured.update(await self.store.namespaces())
        self._set_defaults(namespace)
        await self.apply_policies(namespace)

    async def attach_worker(self, project: str, request: AttachWorker) -> Attachment:
        """Attach a Worker process; what its classes say holds from now on."""
        attachment, changed = await self.objects.attach(project, request)
        self._set_defaults(*changed)
        await self.apply_policies(*changed)
        return attachment

    async def apply_policies(self, *namespaces: str) -> None:
        """Have what classes and namespaces say of connections hold for what runs."""
        boxes = [box for box in self._shared.live.values() if box.namespace in namespaces]
        await asyncio.gather(*(control.adopt(box, box.endpoint) for box in boxes if box.endpoint))

    def _set_defaults(self, *namespaces: str) -> None:
        for name in namespaces:
            config = self._configured.get(name, NamespaceConfig())
            self.namespaces[name] = self.objects.registry.effective(name, config)


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Engine]:
    """Open an engine on its state directory, which the caller has locked.

    Raises:
        SandboxError: the directory, the store or a component cannot be used.
    """
    linux.drop_sys_resource()  # before the store's threads: they would keep it
    state_dir = settings.storage.state_dir
    async with AsyncExitStack() as stack:
        (state_dir / "run").mkdir(mode=0o700, parents=True, exist_ok=True)
        replica = await components.replica(settings, stack)
        store = replica.store if replica else await Store(state_dir / "atoll.db").open()
        stack.push_async_callback(store.close)
        engine_id = await store.meta("engine_id", secrets.token_hex(4))
        parts = await components.built(settings, engine_id, stack)
        engine = Engine(settings, store, engine_id, parts, replica.peers if replica else None)
        await engine.recover()
        stack.push_async_callback(engine.close)
        if replica:
            stack.push_async_callback(replica.follow(engine))
        yield engine
