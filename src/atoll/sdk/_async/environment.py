"""Where a caller begins: an engine, its namespaces, and sandboxes in them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from atoll.errors import ValidationFailedError
from atoll.sdk import _aio, _archive, _arguments, _shared
from atoll.sdk._async.backups import BackupShelf
from atoll.sdk._async.images import Images
from atoll.sdk._async.keys import Keys
from atoll.sdk._async.packages import PackageCaches
from atoll.sdk._async.pool import Pool
from atoll.sdk._async.sandbox import Sandbox
from atoll.sdk._async.secrets import Secrets
from atoll.sdk._async.snapshots import SnapshotShelf
from atoll.sdk._async.target import Address
from atoll.sdk._async.transport import Transport
from atoll.sdk._async.volumes import VolumeShelf
from atoll.sdk._results import ContainerTimeouts
from atoll.sdk._secret import Secret
from atoll.wire import ids, ops
from atoll.wire.base import Duration, Empty
from atoll.wire.disk import Collect, Collected, DiskQuery, DiskUsage
from atoll.wire.keys import AuditPage, AuditQuery
from atoll.wire.namespaces import NamespacePage, NamespaceQuery
from atoll.wire.objects import Project, ProjectConfig
from atoll.wire.sandbox import CustomInstance, NamespaceConfig, SandboxPage, Version


class Namespace(SnapshotShelf):
    """A set of sandboxes: the sandboxes of one class of a project, `Sandbox` by default."""

    sandbox_type: type[Sandbox] = Sandbox
    """What `get_sandbox` returns; a Worker's own namespaces have the methods of their class."""

    def __init__(self, transport: Transport, name: str) -> None:
        self.transport = transport
        self.name = ids.check_namespace(name)

    def __repr__(self) -> str:
        return f"<Namespace {self.name} at {self.transport.endpoint.shown}>"

    @property
    def secrets(self) -> Secrets:
        """Values that its sandboxes use and never see."""
        return Secrets(self.transport, self.name)

    async def configure(self, config: NamespaceConfig) -> None:
        """Set the defaults of sandboxes in this namespace; they hold from their next start on."""
        await self.transport.call(ops.CONFIGURE_NAMESPACE, {"namespace": self.name}, config)

    async def list(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        state: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> SandboxPage:
        """Return one page of the sandboxes in this namespace; wakes none.

        Args:
            labels: only sandboxes that have all of these.
            state: only sandboxes in this state (in the engine's words, like "running").
            cursor: `cursor` of the page before.
            limit: most entries of this page.
        """
        wanted = _arguments.mapping("labels", labels)
        request = ops.ListSandboxes(
            labels=",".join(f"{key}={value}" for key, value in wanted.items()) or None,
            state=state,
            cursor=cursor,
            limit=limit,
        )
        return await self.transport.call(ops.LIST_SANDBOXES, {"namespace": self.name}, request)


class Environment:
    """An engine. Its namespaces are attributes: ``env.Sandbox``, or ``env.namespace(name)``."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    @property
    def images(self) -> Images:
        """The engine's images."""
        return Images(self.transport)

    @property
    def backups(self) -> BackupShelf:
        """The engine's backups."""
        return BackupShelf(self.transport)

    @property
    def volumes(self) -> VolumeShelf:
        """The engine's volumes."""
        return VolumeShelf(self.transport)

    @property
    def package_caches(self) -> PackageCaches:
        """The caches of pip, npm and uv that sandboxes begin with."""
        return PackageCaches(self.transport)

    @property
    def pool(self) -> Pool:
        """The engine's warm pool."""
        return Pool(self.transport)

    @property
    def keys(self) -> Keys:
        """The engine's API keys."""
        return Keys(self.transport)

    async def offer_buckets(self, folders: Mapping[str, str | Path]) -> None:
        """Have folders of this host stand for buckets, for `mount_bucket` with ``local_bucket``.

        They do as long as this is open, for everybody who uses its engine; the last call counts.

        Args:
            folders: name of a binding → a folder; made when it is missing.

        Raises:
            NotSupportedByRuntimeError: this engine is not one of `local`.
        """
        wanted = {
            name: _archive.local_path("folders", folder)
            for name, folder in _arguments.mapping("folders", folders).items()
        }
        await self.transport.offer(await _aio.in_thread(_aio.made_folders, wanted))

    async def disk(self, *, namespace: str = "Sandbox", limit: int = 100) -> DiskUsage:
        """Return what sandboxes, snapshots, backups and volumes of a namespace take.

        Args:
            namespace: its name.
            limit: most entries told one by one, the largest first; up to 1,000.
        """
        place = {"namespace": namespace}
        return await self.transport.call(ops.DISK, place, DiskQuery(limit=limit))

    async def gc(self, *, dry_run: bool = True) -> Collected:
        """Return what on the engine's disk nobody needs: what has ended, what nobody owns.

        Args:
            dry_run: False: remove it. The engine does so by itself from time to time.
        """
        return await self.transport.call(ops.COLLECT, {}, Collect(dry_run=dry_run))

    async def namespaces(self, *, cursor: str | None = None, limit: int = 100) -> NamespacePage:
        """Return one page of the engine's namespaces, in order of name. For its administrators.

        Args:
            cursor: `cursor` of the page before.
            limit: most entries of this page, up to 1,000.
        """
        wanted = NamespaceQuery(cursor=cursor, limit=limit)
        return await self.transport.call(ops.LIST_NAMESPACES, {}, wanted)

    async def audit(
        self,
        *,
        namespace: str | None = None,
        caller: str | None = None,
        operation: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> AuditPage:
        """Return records of mutating calls, newest first.

        Args:
            namespace: only calls for this one.
            caller: only calls with the key of this id ("settings", "owner": see `AuditRecord`).
            operation: only calls of this operation of the API.
            before: `cursor` of the page before.
            limit: most records of this page, up to 1,000.
        """
        wanted = AuditQuery(
            namespace=namespace, caller=caller, operation=operation, before=before, limit=limit
        )
        return await self.transport.call(ops.LIST_AUDIT, {}, wanted)

    async def url(self) -> str:
        """Return an address for `connect`; a private engine is started for it."""
        await self.transport.open()
        return self.transport.endpoint.shown

    async def configure_project(self, name: str, config: ProjectConfig) -> Project:
        """Tell the engine which classes a Worker project has; migrations are applied once.

        Raises:
            InvalidConfigError: a migration cannot be applied.
        """
        return await self.transport.call(ops.CONFIGURE_PROJECT, {"project": name}, config)

    def namespace(self, name: str) -> Namespace:
        """Return the namespace with this name."""
        return Namespace(self.transport, name)

    def __getattr__(self, name: str) -> Namespace:
        if not name[0].isupper():
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.namespace(name)

    async def version(self) -> Version:
        """Return the engine's version.

        Raises:
            VersionMismatchError: client and engine are too far apart.
        """
        version = await self.transport.call(ops.VERSION, {}, Empty())
        _shared.check_version(version)
        return version

    async def aclose(self) -> None:
        """Close the connections to the engine. Calls raise `EngineUnreachableError` after it.

        Entering the environment again (``async with env:``) opens it again.
        """
        await self.transport.aclose()

    async def __aenter__(self) -> Self:
        self.transport.closed = False
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


def connect(url: str | None = None, api_key: str | None = None) -> Environment:
    """Return a running engine. Nothing is sent before the first call.

    Args:
        url: ``http://host:8787``, ``https://host`` or ``unix:///path/engine.sock``; default: the
            variable ``ATOLL_URL``, else the socket in ``ATOLL_STATE_DIR``, else that in
            ``/var/lib/atoll``.
        api_key: default: the variable ``ATOLL_API_KEY``.

    Raises:
        InvalidConfigError: the address is malformed.
    """
    return Environment(Transport(_shared.find_endpoint(url, api_key, _aio.environment())))


def get_sandbox(
    namespace: Namespace,
    id: str,
    *,
    sleep_after: Duration | None = None,
    keep_alive: bool | None = None,
    sleep_mode: str | None = None,
    normalize_id: bool = False,
    enable_default_session: bool | None = None,
    container_timeouts: ContainerTimeouts | Mapping[str, Duration] | None = None,
    instance_type: str | CustomInstance | Mapping[str, Any] | None = None,
    image: str | None = None,
    runtime: str | None = None,
    env: Mapping[str, str | Secret | None] | None = None,
    enable_internet: bool | None = None,
    labels: Mapping[str, str] | None = None,
    ttl: Duration | None = None,
    queue: Duration | None = None,
    volumes: Mapping[str, str] | None = None,
    package_cache: str | None = None,
) -> Sandbox:
    """Return the sandbox with this id, without any I/O: the first operation creates or wakes it.

    Options that are given are remembered by the engine; None leaves them as they are.

    Args:
        namespace: like ``env.Sandbox``.
        id: 1 to 63 letters, digits, ``-``, ``_`` or ``.``.
        sleep_after: idle time before it sleeps.
        keep_alive: it never sleeps and must be destroyed.
        sleep_mode: "stop" frees its memory, "freeze" keeps its processes.
        normalize_id: use the id in lower case (needed for previews).
        enable_default_session: False: calls that name no session share no shell state.
        container_timeouts: how long this client waits for the container.
        instance_type: a name, or ``{"vcpu": …, "memory_mib": …, "disk_mb": …}``.
        image: an image reference or a folder with a Dockerfile.
        runtime: "container", "gvisor", "bwrap" or the name of an OCI runtime.
        env: start environment; a value may be a `secret`.
        enable_internet: whether it reaches the internet.
        labels: for `Namespace.list`.
        ttl: time after which it is destroyed, whatever it does.
        queue: how long to wait for room instead of failing with `MaxInstancesExceededError`.
        volumes: path inside → name of a volume.
        package_cache: name of a volume where pip, npm and uv find and keep what they download, each
            sandbox in a copy of its own; "" for none.

    Raises:
        InvalidSandboxIdError: the id breaks the rules.
        ValidationFailedError: an option is malformed, or *namespace* is none.
    """
    if not isinstance(namespace, Namespace):
        raise ValidationFailedError(
            f"namespace is not a namespace of this SDK, but {type(namespace).__name__}",
            context={"field": "namespace"},
            suggestion='use env.Sandbox or env.namespace("Sandbox")',
        )
    options = _arguments.sandbox_options(
        sleep_after=sleep_after,
        keep_alive=keep_alive,
        sleep_mode=sleep_mode,
        enable_default_session=enable_default_session,
        instance_type=instance_type,
        image=image,
        runtime=runtime,
        env=env,
        enable_internet=enable_internet,
        labels=labels,
        ttl=ttl,
        queue=queue,
        volumes=volumes,
        package_cache=package_cache,
    )
    ids.check_sandbox_id(id)
    sandbox_id = id.lower() if normalize_id else id
    limits = _arguments.timeouts(container_timeouts, _aio.environment())
    address = Address(
        namespace.transport, namespace.name, sandbox_id, options, limits.instance_get, limits
    )
    return namespace.sandbox_type(address)
