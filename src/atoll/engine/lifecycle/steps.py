"""The steps of a start, each with its undo.

An undo knows nothing but the `host_ref` and is idempotent, so the same list serves a start that
failed, a stop, a destroy, and whatever a killed engine left behind at any step.
"""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from atoll.engine.lifecycle import rootfiles
from atoll.engine.lifecycle.launch import Launch, made
from atoll.engine.link.link import Endpoint, LinkError
from atoll.engine.storage import copies
from atoll.engine.store import record
from atoll.engine.store.record import InForce
from atoll.errors import ContainerUnavailableError, FilesystemError
from atoll.host.threads import run_to_end
from atoll.images import certificates
from atoll.images.certificates import TARGET as TRUST_TARGET
from atoll.runtime.base import ContainerSpec, Mount, Runtime
from atoll.settings import MB
from atoll.storage.buckets import client as buckets
from atoll.wire import ids

if TYPE_CHECKING:
    from atoll.engine.lifecycle.sequence import Lifecycle


COUNTED = 10.0
"""Seconds that a cluster may take to count a Pod no more that has ended."""

BUCKETS = "buckets"
"""In the directory of a start: one folder for the client of each bucket that is mounted."""


class Step(NamedTuple):
    """One step of a start and its undo. `beside`: it needs nothing of the step before it."""

    name: str
    make: Callable[["Lifecycle", Launch], Awaitable[None]]
    remove: Callable[["Lifecycle", str], Awaitable[None]] | None
    beside: bool = False


async def _image(life: "Lifecycle", launch: Launch) -> None:
    images, rec = life.parts.images, launch.record
    launch.image = await images.obtain(launch.wanted.image or "")
    await images.hold(launch.image.digest, rec.layer_id, life.settings.storage.state_dir)
    if rec.in_force and rec.in_force.digest != launch.image.digest:
        await images.release(rec.in_force.digest, rec.layer_id)


async def _layer(life: "Lifecycle", launch: Launch) -> None:
    rec = launch.record
    if await life.parts.layers.exists(rec.layer_id):
        return
    if rec.in_force:  # it ran before: an empty layer would hide that its files are lost
        raise FilesystemError(
            f"the files of sandbox {rec.id!r} are not in the layer store",
            suggestion="bring the state directory back, or destroy the sandbox",
        )
    launch.new_layer = True
    size = launch.size.disk_mb * MB
    if launch.base:
        await life.parts.layers.snapshots.clone(launch.base, rec.layer_id, size)
    else:
        await life.parts.layers.create(rec.layer_id, size)


async def _ids(life: "Lifecycle", launch: Launch) -> None:
    if life.parts.runtime(launch.wanted.runtime or "").own_ids:
        launch.id_base = life.parts.ids.acquire(launch.host_ref)


async def _free_ids(life: "Lifecycle", host_ref: str) -> None:
    life.parts.ids.release(host_ref)


async def _runtime(life: "Lifecycle", launch: Launch) -> None:
    runtime = life.parts.runtime(launch.wanted.runtime or "")
    await runtime.prepare(launch.host_ref, launch.id_base, life.parts.ids.count)


async def _rootfs(life: "Lifecycle", launch: Launch) -> None:
    launch.rootfs = await life.parts.roots.mount(
        launch.host_ref,
        made(launch.image).layers,
        launch.record.layer_id,
        launch.id_base,
        life.parts.ids.count,
    )


async def _unmount(life: "Lifecycle", host_ref: str) -> None:
    await life.parts.roots.unmount(host_ref)


async def _claims(life: "Lifecycle", launch: Launch) -> None:
    life.claims.take(launch.host_ref, launch.record.id, launch.volumes.values())


async def _give_up_claims(life: "Lifecycle", host_ref: str) -> None:
    life.claims.release(host_ref)


async def _copies(life: "Lifecycle", launch: Launch) -> None:
    await copies.make(life.parts.layers, launch.host_ref, launch.volumes)


async def _drop_copies(life: "Lifecycle", host_ref: str) -> None:
    if life.claims.holds(host_ref):
        await copies.drop(life.parts.layers, host_ref)


async def _volumes(life: "Lifecycle", launch: Launch) -> None:
    own = copies.names(launch.host_ref, launch.volumes)
    for path, volume in launch.volumes.items():
        layer_id = own.get(path, volume.layer_id)
        await life.parts.roots.attach(launch.host_ref, path, layer_id, read_only=volume.read_only)


async def _network(life: "Lifecycle", launch: Launch) -> None:
    launch.slot = await life.parts.networks.acquire(launch.host_ref)
    if launch.policy:
        await life.egress.enforce(launch.host_ref, launch.policy, launch.authority)
    else:  # most will be: then there is nothing to do when somebody takes it
        await life.parts.networks.set_mode(launch.host_ref, "direct")


async def _release(life: "Lifecycle", host_ref: str) -> None:
    await life.egress.forget(host_ref)
    await life.parts.networks.release(host_ref)


async def _files(life: "Lifecycle", launch: Launch) -> None:
    slot = made(launch.slot)
    files = life.run_dir(launch.host_ref) / "files"
    launch.mounts += rootfiles.write(
        files,
        hostname=ids.hostname(launch.record.id),
        address=slot.address,
        nameservers=slot.nameservers,
    )
    if launch.authority:
        await _trust_authority(life, launch, files, launch.authority.certificate)
    elif trust := await life.parts.images.trust():
        launch.mounts.append(
            await run_to_end(rootfiles.own_copy, files, trust.directory, TRUST_TARGET)
        )
        launch.trust_env |= trust.env


async def _trust_authority(
    life: "Lifecycle", launch: Launch, files: Path, certificate: str
) -> None:
    host = await life.parts.images.trust()
    trust = await run_to_end(certificates.with_authority, files, host, certificate)
    launch.mounts.append(Mount(source=trust.directory, target=TRUST_TARGET))
    launch.trust_env |= trust.env


async def _directory(life: "Lifecycle", launch: Launch) -> None:
    life.container_dir(launch.host_ref).mkdir(mode=0o700, parents=True, exist_ok=True)


async def _remove_directory(life: "Lifecycle", host_ref: str) -> None:
    directory = life.run_dir(host_ref)
    await _end_clients(life, directory / BUCKETS)
    shutil.rmtree(directory / "files", ignore_errors=True)
    # Only empty directories: a root that is still mounted must never be entered by a removal.
    for path in (life.container_dir(host_ref), directory / "rootfs", directory):
        if path.exists():
            path.rmdir()


async def _end_clients(life: "Lifecycle", folder: Path) -> None:
    for layer in await buckets.stop_all(folder):  # what they had not sent is lost with them
        if await life.parts.layers.exists(layer):
            await life.parts.layers.delete(layer)


async def _container(life: "Lifecycle", launch: Launch) -> None:
    runtime = life.parts.runtime(launch.wanted.runtime or "")
    spec = _spec(life, launch)
    try:
        await runtime.start(spec)
    except ContainerUnavailableError as error:
        if error.context.get("reason") != "capacity" or not await _room(life, launch):
            raise
        await _once_there_is_room(runtime, spec)
    launch.endpoint = Endpoint(runtime, spec.run_dir, spec.host_ref, spec.generation)


async def _room(life: "Lifecycle", launch: Launch) -> bool:
    """Have the warm pool give way, for a sandbox of somebody; return whether it had anything."""
    return launch.policy is not None and await life.make_room()


async def _once_there_is_room(runtime: Runtime, spec: ContainerSpec) -> None:
    """Start it; what was removed for it is counted for a while longer."""
    deadline = time.monotonic() + COUNTED
    while True:
        try:
            await runtime.start(spec)
            return
        except ContainerUnavailableError as error:
            if error.context.get("reason") != "capacity" or time.monotonic() > deadline:
                raise
        await asyncio.sleep(COUNTED / 20)


def _spec(life: "Lifecycle", launch: Launch) -> ContainerSpec:
    config = made(launch.image).config
    limits = record.limits(launch.size, life.settings.runtime.pids)
    return ContainerSpec(
        host_ref=launch.host_ref,
        generation=launch.record.generation,
        identity=launch.record.layer_id,
        hostname=ids.hostname(launch.record.id),
        runtime=launch.wanted.runtime or "",
        image=made(launch.image).reference,
        first=launch.record.in_force is None,
        rootfs=made(launch.rootfs),
        run_dir=life.container_dir(launch.host_ref),
        netns=made(launch.slot).netns,
        address=made(launch.slot).address,
        id_base=launch.id_base,
        id_count=life.parts.ids.count,
        memory=limits.memory,
        cpu=limits.cpu,
        disk=limits.disk,
        pids=limits.pids,
        env=launch.env,
        workdir=config.workdir or "/workspace",
        user=config.user or "0:0",
        mounts=tuple(launch.mounts),
        lease=launch.lease,
    )


async def _remove_container(life: "Lifecycle", host_ref: str) -> None:
    try:
        for runtime in life.parts.drivers():
            await runtime.remove(host_ref)
    except ContainerUnavailableError:
        # A process that waits for a bucket ends when the bucket's client does: the next try finds it.
        buckets.kill_all(life.run_dir(host_ref) / BUCKETS)
        raise


async def _hello(life: "Lifecycle", launch: Launch) -> None:
    endpoint = made(launch.endpoint)
    try:
        hello = await life.hello(endpoint, life.settings.runtime.start_timeout)
    except LinkError as error:
        raise ContainerUnavailableError(
            f"the sandbox started but its agent does not answer: {error}",
            context={"reason": "runtime"},
        ) from error
    if hello.image:
        launch.seen_env, launch.seen_workdir = hello.image.env, hello.image.workdir


STEPS: tuple[Step, ...] = (
    Step("directory", _directory, _remove_directory),
    Step("ids", _ids, _free_ids),
    Step("claims", _claims, _give_up_claims, beside=True),
    Step("image", _image, None),
    Step("layer", _layer, None, beside=True),
    Step("copies", _copies, _drop_copies, beside=True),
    Step("network", _network, _release, beside=True),
    Step("runtime", _runtime, None, beside=True),
    Step("rootfs", _rootfs, _unmount),
    Step("files", _files, None, beside=True),
    Step("volumes", _volumes, None),
    Step("container", _container, _remove_container),
    Step("hello", _hello, None),
)
"""A start from top to bottom, a removal from bottom to top and one after the other."""


def in_force(life: "Lifecycle", launch: Launch) -> InForce:
    """Return what a start that succeeded really used."""
    image, runtime = made(launch.image), made(launch.endpoint).runtime
    kind = launch.wanted.instance_type
    return InForce(
        image=launch.image_name or image.reference,
        digest=image.digest,
        instance_type=kind if isinstance(kind, str) else "custom",
        level=runtime.level,
        runtime=runtime.name,
        limits=record.limits(launch.size, life.settings.runtime.pids),
        unlimited=runtime.unlimited,
        id_base=launch.id_base,
        base_env=launch.base_env,
        env=launch.env,
        workdir=launch.seen_workdir or image.config.workdir or "/workspace",
        user=image.config.user or "0:0",
        volumes=launch.volumes,
        lease=launch.lease,
        command=[*image.config.entrypoint, *image.config.cmd],
    )
