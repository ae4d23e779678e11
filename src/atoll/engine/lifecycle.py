"""How a sandbox is made and removed: a visible list of steps, each with its undo.

`STEPS` is in the order of a start; removal runs it backwards. An undo knows nothing but the
`host_ref` and is idempotent, so the same list serves a start that failed, a stop, a destroy, and
whatever a killed engine left behind at any step. The `host_ref` is in the store before the first
step runs. The writable layer is not part of it: it belongs to the record and outlives starts.
"""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import structlog

from atoll.engine import record, rootfiles, stages, variables
from atoll.engine.link import Endpoint, LinkError
from atoll.engine.parts import Image, Parts, Slot
from atoll.engine.record import InForce, Record
from atoll.engine.variables import Variables
from atoll.errors import (
    ContainerUnavailableError,
    FilesystemError,
    SandboxError,
    VersionMismatchError,
    from_os_error,
)
from atoll.images.certificates import TARGET as TRUST_TARGET
from atoll.runtime.base import ContainerSpec, Mount
from atoll.settings import MB, InstanceType, Settings
from atoll.wire import ids
from atoll.wire.agent import HELLO_TIMEOUT, PROTOCOL, SHUTDOWN_GRACE
from atoll.wire.sandbox import SandboxOptions

log = structlog.get_logger(__name__)

T = TypeVar("T")

ATTEMPTS = 3
"""How often a removal is tried before it is left to the reaper."""


class Hello(msgspec.Struct):
    """First answer of an agent."""

    protocol: int
    generation: int
    version: str = ""
    pid: int = 0


@dataclass(slots=True)
class Launch:
    """One start: what is wanted, and what the steps have made so far."""

    record: Record
    wanted: SandboxOptions
    size: InstanceType
    variables: tuple[Variables, ...] = ()
    image: Image | None = None
    new_layer: bool = False
    id_base: int = 0
    rootfs: Path | None = None
    slot: Slot | None = None
    mounts: list[Mount] = field(default_factory=list)
    trust_env: dict[str, str] = field(default_factory=dict)
    endpoint: Endpoint | None = None
    took: dict[str, float] = field(default_factory=dict)
    """Step → seconds."""

    @property
    def host_ref(self) -> str:
        """The name of everything this start makes."""
        if self.record.host_ref is None:
            raise AssertionError("a start is recorded before it is made")
        return self.record.host_ref

    @property
    def base_env(self) -> dict[str, str]:
        """Variables before anybody set some."""
        return self.trust_env | dict(_made(self.image).config.env)

    @property
    def env(self) -> dict[str, str]:
        """Variables that commands start with."""
        return variables.effective(self.base_env, *self.variables)


class Step(NamedTuple):
    """One step of a start and its undo. `beside`: it needs nothing of the step before it."""

    name: str
    make: Callable[["Lifecycle", Launch], Awaitable[None]]
    remove: Callable[["Lifecycle", str], Awaitable[None]] | None
    beside: bool = False


class Lifecycle:
    """Makes and removes what a running sandbox needs on this host.

    Args:
        parts: the components.
        settings: sizes, timeouts, directories.
    """

    def __init__(self, parts: Parts, settings: Settings) -> None:
        self.parts = parts
        self.settings = settings
        self.building: set[str] = set()
        """Names in use by image builds, which no record tells of."""

    def run_dir(self, host_ref: str) -> Path:
        """Return the directory of one start."""
        return self.settings.storage.state_dir / "run" / host_ref

    def endpoint(self, rec: Record) -> Endpoint:
        """Return where the agent of a recorded start is reached."""
        host_ref, level = rec.host_ref or "", rec.in_force.level if rec.in_force else ""
        return Endpoint(
            self.parts.runtime(level), self.container_dir(host_ref), host_ref, rec.generation
        )

    def container_dir(self, host_ref: str) -> Path:
        """Return what the runtime driver has for itself, apart from the mounted root."""
        return self.run_dir(host_ref) / "container"

    async def start(self, launch: Launch) -> Endpoint:
        """Run all steps; undo them when one fails or the start is cancelled.

        Raises:
            SandboxError: what the failing step raised; `context.step` names it.
        """
        try:
            for stage in stages.grouped(STEPS, lambda step: step.beside):
                await stages.together(self._make(step, launch) for step in stage)
        except BaseException:
            await self.remove(launch.host_ref)
            if launch.new_layer:
                await self.forget_files(launch.record, launch.image)
            raise
        log.debug("start took", host_ref=launch.host_ref, **_milliseconds(launch.took))
        return _made(launch.endpoint)

    async def _make(self, step: Step, launch: Launch) -> None:
        began = time.perf_counter()
        try:
            await step.make(self, launch)
        except SandboxError as error:
            error.context.setdefault("step", step.name)
            raise
        except OSError as error:
            typed = from_os_error(error, str(error.filename or launch.host_ref))
            typed.context["step"] = step.name
            raise typed from error
        launch.took[step.name] = time.perf_counter() - began

    async def remove(self, host_ref: str) -> bool:
        """Undo everything a start made; return whether all of it is gone.

        A failure is logged and does not keep the other steps from running: what is left is found
        and removed by the reaper.
        """
        clean = True
        for step in reversed(STEPS):
            if step.remove and not await self._removed(step, host_ref):
                clean = False
        return clean

    async def _removed(self, step: Step, host_ref: str) -> bool:
        for attempt in range(ATTEMPTS):
            try:
                await step.remove(self, host_ref)  # type: ignore[misc]  # checked by the caller
                return True
            except Exception as error:
                log.warning(
                    "undo failed",
                    step=step.name,
                    host_ref=host_ref,
                    attempt=attempt,
                    exc_info=error,
                )
                await asyncio.sleep(0.05 * attempt)
        return False

    async def forget_files(self, rec: Record, image: Image | None = None) -> None:
        """Delete the layer and give up the image: the files of this life of the id are gone.

        A layer that cannot be deleted now has no owner any more, so the reaper does it.
        """
        try:
            await self.parts.layers.delete(rec.layer_id)
        except SandboxError as error:
            log.warning("a layer is left to the reaper", layer=rec.layer_id, reason=str(error))
        digests = {rec.in_force.digest if rec.in_force else None, image.digest if image else None}
        for digest in digests - {None}:
            await self.parts.images.release(str(digest), rec.layer_id)

    async def hello(self, endpoint: Endpoint, timeout: float = HELLO_TIMEOUT) -> Hello:
        """Ask the agent who it is.

        Raises:
            LinkError: it does not answer, or is the agent of another start.
            VersionMismatchError: it speaks another protocol.
        """
        reply = await endpoint.call({"op": "hello", "version": PROTOCOL}, timeout)
        try:
            hello = msgspec.json.decode(reply, type=Hello)
        except msgspec.MsgspecError as error:
            raise LinkError(f"the agent's hello is malformed ({error})") from error
        if hello.protocol != PROTOCOL:
            raise VersionMismatchError(
                f"the agent speaks protocol {hello.protocol}, the engine {PROTOCOL}",
                suggestion="stop the sandbox; its next start uses the agent of this engine",
            )
        if hello.generation != endpoint.generation:
            raise LinkError(f"an agent of start {hello.generation} answered")
        return hello

    async def shut_down(self, endpoint: Endpoint) -> None:
        """Let the agent end all commands; one that does not answer is ended by `remove`."""
        try:
            await endpoint.call({"op": "shutdown", "grace": SHUTDOWN_GRACE}, SHUTDOWN_GRACE + 1)
        except (LinkError, SandboxError) as error:
            log.warning("agent did not shut down", host_ref=endpoint.host_ref, reason=str(error))


async def _image(life: Lifecycle, launch: Launch) -> None:
    images, rec = life.parts.images, launch.record
    launch.image = await images.obtain(launch.wanted.image or "")
    await images.hold(launch.image.digest, rec.layer_id, life.settings.storage.state_dir)
    if rec.in_force and rec.in_force.digest != launch.image.digest:
        await images.release(rec.in_force.digest, rec.layer_id)


async def _layer(life: Lifecycle, launch: Launch) -> None:
    rec = launch.record
    if await life.parts.layers.exists(rec.layer_id):
        return
    if rec.in_force:  # it ran before: an empty layer would hide that its files are lost
        raise FilesystemError(
            f"the files of sandbox {rec.id!r} are not in the layer store",
            suggestion="bring the state directory back, or destroy the sandbox",
        )
    launch.new_layer = True
    await life.parts.layers.create(rec.layer_id, launch.size.disk_mb * MB)


async def _ids(life: Lifecycle, launch: Launch) -> None:
    launch.id_base = life.parts.ids.acquire(launch.host_ref)


async def _free_ids(life: Lifecycle, host_ref: str) -> None:
    life.parts.ids.release(host_ref)


async def _rootfs(life: Lifecycle, launch: Launch) -> None:
    launch.rootfs = await life.parts.roots.mount(
        launch.host_ref,
        _made(launch.image).layers,
        launch.record.layer_id,
        launch.id_base,
        life.parts.ids.count,
    )


async def _unmount(life: Lifecycle, host_ref: str) -> None:
    await life.parts.roots.unmount(host_ref)


async def _network(life: Lifecycle, launch: Launch) -> None:
    launch.slot = await life.parts.networks.acquire(launch.host_ref)
    if not launch.wanted.enable_internet:
        await life.parts.networks.set_internet(launch.host_ref, allowed=False)


async def _release(life: Lifecycle, host_ref: str) -> None:
    await life.parts.networks.release(host_ref)


async def _files(life: Lifecycle, launch: Launch) -> None:
    slot = _made(launch.slot)
    files = life.run_dir(launch.host_ref) / "files"
    launch.mounts += rootfiles.write(
        files,
        hostname=ids.hostname(launch.record.id),
        address=slot.address,
        nameservers=slot.nameservers,
    )
    if trust := await life.parts.images.trust():
        launch.mounts.append(
            await asyncio.to_thread(rootfiles.own_copy, files, trust.directory, TRUST_TARGET)
        )
        launch.trust_env |= trust.env


async def _directory(life: Lifecycle, launch: Launch) -> None:
    life.container_dir(launch.host_ref).mkdir(mode=0o700, parents=True, exist_ok=True)


async def _remove_directory(life: Lifecycle, host_ref: str) -> None:
    directory = life.run_dir(host_ref)
    shutil.rmtree(directory / "files", ignore_errors=True)
    # Only empty directories: a root that is still mounted must never be entered by a removal.
    for path in (life.container_dir(host_ref), directory / "rootfs", directory):
        if path.exists():
            path.rmdir()


async def _container(life: Lifecycle, launch: Launch) -> None:
    runtime = life.parts.runtime(launch.wanted.runtime or "")
    spec = _spec(life, launch)
    await runtime.start(spec)
    launch.endpoint = Endpoint(runtime, spec.run_dir, spec.host_ref, spec.generation)


def _spec(life: Lifecycle, launch: Launch) -> ContainerSpec:
    config = _made(launch.image).config
    limits = record.limits(launch.size, life.settings.runtime.pids)
    return ContainerSpec(
        host_ref=launch.host_ref,
        generation=launch.record.generation,
        identity=launch.record.layer_id,
        hostname=ids.hostname(launch.record.id),
        rootfs=_made(launch.rootfs),
        run_dir=life.container_dir(launch.host_ref),
        netns=_made(launch.slot).netns,
        id_base=launch.id_base,
        id_count=life.parts.ids.count,
        memory=limits.memory,
        cpu=limits.cpu,
        pids=limits.pids,
        env=launch.env,
        workdir=config.workdir or "/workspace",
        user=config.user or "0:0",
        mounts=tuple(launch.mounts),
    )


async def _remove_container(life: Lifecycle, host_ref: str) -> None:
    for runtime in life.parts.runtimes.values():
        await runtime.remove(host_ref)


async def _hello(life: Lifecycle, launch: Launch) -> None:
    endpoint = _made(launch.endpoint)
    try:
        await life.hello(endpoint, life.settings.runtime.start_timeout)
    except LinkError as error:
        raise ContainerUnavailableError(
            f"the sandbox started but its agent does not answer: {error}",
            context={"reason": "runtime"},
        ) from error


STEPS: tuple[Step, ...] = (
    Step("directory", _directory, _remove_directory),
    Step("ids", _ids, _free_ids),
    Step("image", _image, None),
    Step("layer", _layer, None, beside=True),
    Step("network", _network, _release, beside=True),
    Step("rootfs", _rootfs, _unmount),
    Step("files", _files, None, beside=True),
    Step("container", _container, _remove_container),
    Step("hello", _hello, None),
)
"""A start from top to bottom, a removal from bottom to top and one after the other."""


def in_force(life: Lifecycle, launch: Launch) -> InForce:
    """Return what a start that succeeded really used."""
    image, runtime = _made(launch.image), _made(launch.endpoint).runtime
    kind = launch.wanted.instance_type
    return InForce(
        image=image.reference,
        digest=image.digest,
        instance_type=kind if isinstance(kind, str) else "custom",
        level=runtime.level,
        runtime=runtime.name,
        limits=record.limits(launch.size, life.settings.runtime.pids),
        id_base=launch.id_base,
        base_env=launch.base_env,
        env=launch.env,
        workdir=image.config.workdir or "/workspace",
        user=image.config.user or "0:0",
    )


def _milliseconds(took: Mapping[str, float]) -> dict[str, float]:
    return {name: round(seconds * 1000, 1) for name, seconds in took.items()}


def _made(value: T | None) -> T:
    if value is None:
        raise AssertionError("an earlier step makes this")
    return value
