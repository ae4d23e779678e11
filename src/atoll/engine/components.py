"""Builds the components an engine works with, in the order they need each other."""

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from atoll.engine.bare import parts as bare
from atoll.engine.egress.bounds import Bounds, ProcessBounds
from atoll.engine.egress.gateway import NodeGateway
from atoll.engine.leftovers import inheritance
from atoll.engine.leftovers.registry import Registry
from atoll.engine.parts import Networks, Parts
from atoll.errors import RuntimeNotAvailableError
from atoll.host import lasting
from atoll.images.store import ImageStore
from atoll.network import plan, resolvers
from atoll.network.rootless.networks import UserNetworks
from atoll.network.slots import NetworkSlots
from atoll.network.watching import Watching
from atoll.runtime.base import Runtime
from atoll.runtime.bwrap.driver import BwrapRuntime
from atoll.runtime.fake import FakeRuntime
from atoll.runtime.gvisor.driver import GvisorRuntime
from atoll.runtime.oci.driver import OciRuntime
from atoll.settings import Settings
from atoll.storage.folder_roots import FolderRoots
from atoll.storage.idmap import IdRanges
from atoll.storage.label import store_key
from atoll.storage.layers import LayerStore
from atoll.storage.rootfs import BASE as ROOTS
from atoll.storage.rootfs import RootfsStore

if TYPE_CHECKING:
    from atoll.engine.cluster.replica import Replica

_log = structlog.get_logger(__name__)

LEVELS = ("container", "gvisor", "bwrap", "kubernetes", "fake", "fake-tcp")
"""What `runtime.default` may be."""


async def built(settings: Settings, engine_id: str, stack: AsyncExitStack) -> Parts:
    """Open the components; *stack* closes them again.

    Raises:
        SandboxError: this host lacks something that the default level needs.
    """
    if settings.runtime.default not in LEVELS:
        raise RuntimeNotAvailableError(
            f"there is no runtime level {settings.runtime.default!r}",
            context={"runtime": settings.runtime.default, "levels": LEVELS},
            suggestion="set runtime.default to container",
        )
    if settings.runtime.default.startswith("fake"):
        return _fake(settings, engine_id)
    if settings.runtime.default == "kubernetes":
        return await _kubernetes(settings, engine_id, stack)
    rootless = settings.runtime.default == "bwrap"
    if (os.geteuid() != 0) != rootless:
        raise _wrong_user(settings.runtime.default, os.geteuid())
    if rootless:
        return await _rootless(settings, engine_id, stack)
    return await _container(settings, engine_id, stack)


def _wrong_user(level: str, uid: int) -> RuntimeNotAvailableError:
    if level == "bwrap":  # the user who runs it is root inside
        what, suggestion = "is for users who are not root", "leave runtime.default out as root"
    else:
        what = "needs an engine that runs as root"
        suggestion = "start the engine as root, clients need not be; or use level bwrap"
    return RuntimeNotAvailableError(
        f"level {level} {what}",
        context={"runtime": level, "uid": uid},
        suggestion=f"{suggestion} (`atoll doctor` tells more)",
    )


async def _kubernetes(settings: Settings, engine_id: str, stack: AsyncExitStack) -> Parts:
    try:
        from atoll.engine.cluster.opening import opened  # needs an extra
    except ModuleNotFoundError as error:
        raise extra_missing(error) from error
    return await opened(settings, engine_id, stack)


def extra_missing(error: ModuleNotFoundError) -> RuntimeNotAvailableError:
    """Return the error that says what to install for level kubernetes."""
    return RuntimeNotAvailableError(
        f"level kubernetes needs {error.name}",
        context={"runtime": "kubernetes", "missing": error.name},
        suggestion="pip install 'atoll[cluster]'",
    )


async def replica(settings: Settings, stack: AsyncExitStack) -> "Replica | None":
    """Open what one of several engines of a cluster has instead of a file; None: it is alone.

    Raises:
        RuntimeNotAvailableError: the cluster cannot be used.
    """
    if settings.runtime.default != "kubernetes" or not settings.cluster.replicas:
        return None
    try:
        from atoll.engine.cluster.replica import joined  # needs an extra
    except ModuleNotFoundError as error:
        raise extra_missing(error) from error
    return await joined(settings.cluster, stack)


async def _container(settings: Settings, engine_id: str, stack: AsyncExitStack) -> Parts:
    registry = Registry()
    entry = await registry.enter(engine_id, settings.storage.state_dir)
    stack.callback(_leave, registry, entry, engine_id, settings)
    await inheritance.settle(settings, registry)
    runtimes = await _of_root(settings, engine_id)
    layers = LayerStore(settings.storage)
    await layers.open()
    roots = RootfsStore(settings.storage, layers)
    stack.push_async_callback(_close_storage, layers, roots)
    await roots.open()
    networks = NetworkSlots(settings.network, engine_id)
    gateway = _gateway(settings, engine_id, networks)
    watching = Watching(plan.log_group(engine_id), gateway.tell_direct)
    stack.push_async_callback(gateway.direct.close)
    stack.callback(watching.close)
    await networks.open(log=plan.log_group(engine_id) if watching.open() else None)
    stack.push_async_callback(networks.close)
    await gateway.open()
    stack.push_async_callback(_close_gateway, gateway, networks)
    return Parts(
        images=ImageStore(settings.storage, settings.images),
        layers=layers,
        roots=roots,
        networks=networks,
        ids=IdRanges(settings.runtime.id_base, settings.runtime.id_count, engine_id),
        runtimes=runtimes,
        gateway=gateway,
    )


async def _of_root(settings: Settings, engine_id: str) -> dict[str, Runtime]:
    """Return the levels that this host has; only the default one has to be there."""
    found: dict[str, Runtime] = {}
    for kind in (OciRuntime, GvisorRuntime):
        try:
            found[kind.level] = await kind.open(settings.runtime, settings.storage, engine_id)
        except RuntimeNotAvailableError as error:
            if kind.level == settings.runtime.default:
                raise
            _log.info("level not available", level=kind.level, reason=error.message)
    return found


def _gateway(settings: Settings, engine_id: str, networks: NetworkSlots) -> NodeGateway:
    return NodeGateway(
        settings.storage.state_dir / "egress",
        settings.network.nameservers or resolvers.all_nameservers(),
        networks,
        plan.gateway_uid(engine_id),
        Bounds(engine_id, settings.network.gateway_memory_mib << 20),
        [Path(file) for file in settings.network.authorities],
    )


def _user_gateway(settings: Settings, networks: UserNetworks) -> NodeGateway:
    return NodeGateway(
        settings.storage.state_dir / "egress",
        settings.network.nameservers or resolvers.all_nameservers(),
        networks,
        os.geteuid(),
        ProcessBounds(settings.network.gateway_memory_mib << 20),
        [Path(file) for file in settings.network.authorities],
        networks.listeners,
    )


async def _close_gateway(gateway: NodeGateway, networks: Networks) -> None:
    """End it, unless a sandbox still runs: it decides without an engine."""
    await gateway.close(stop=not await networks.list())


async def _rootless(settings: Settings, engine_id: str, stack: AsyncExitStack) -> Parts:
    """All of it lies in the state directory, so nobody else has to know of this engine."""
    storage, ids = settings.storage, settings.runtime
    runtime = await BwrapRuntime.open(settings.runtime, storage, engine_id)
    runtime.watch.open()
    stack.push_async_callback(runtime.watch.close)
    layers = LayerStore(storage, backend="folders")
    await layers.open()
    stack.push_async_callback(layers.close)
    networks = UserNetworks(settings.network, storage.state_dir / "networks")
    await networks.open()
    stack.push_async_callback(networks.close)
    gateway = _user_gateway(settings, networks) if networks.way_out else None
    if gateway:
        await gateway.open()
        stack.push_async_callback(_close_gateway, gateway, networks)
    return Parts(
        images=ImageStore(storage, settings.images),
        layers=layers,
        roots=FolderRoots(storage.state_dir / "run", layers),
        networks=networks,
        gateway=gateway,
        ids=IdRanges(ids.id_base, ids.id_count, engine_id, storage.state_dir / "ids"),
        runtimes={runtime.level: runtime},
    )


def _leave(registry: Registry, entry: int, engine_id: str, settings: Settings) -> None:
    """Keep the entry while sandboxes or tunnels run: only with it they are found without the engine."""
    used = (ROOTS / store_key(settings.storage.state_dir)).exists() or lasting.of_engine(engine_id)
    registry.leave(entry, engine_id, clean=not used)


async def _close_storage(layers: LayerStore, roots: RootfsStore) -> None:
    """Leave no mount behind, unless a sandbox runs on it."""
    used = bool(await roots.list())
    if not used:
        await roots.close()
    await layers.close(unmount=not used)


def _fake(settings: Settings, engine_id: str) -> Parts:
    runtime, claims = settings.runtime, settings.storage.state_dir / "ids"
    layers = settings.storage.state_dir / "layers"
    fake = FakeRuntime(
        settings.storage.state_dir / "run", tcp=settings.runtime.default == "fake-tcp"
    )
    return Parts(
        images=bare.BareImages(),
        layers=bare.BareLayers(layers),
        roots=bare.BareRoots(layers),
        networks=bare.BareNetworks(),
        ids=IdRanges(runtime.id_base, runtime.id_count, engine_id, claims),
        runtimes={fake.level: fake},
    )
