"""How a sandbox is made and removed: the steps of a start in order, their undos backwards.

The same list (`steps.STEPS`) serves a start that failed, a stop, a destroy, and whatever a killed
engine left behind at any step. The `host_ref` is in the store before the first step runs. The
writable layer is not part of it: it belongs to the record and outlives starts.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec
import structlog

import atoll
from atoll.engine.egress.enforcing import Enforcing
from atoll.engine.lifecycle import stages
from atoll.engine.lifecycle.faults import Faults
from atoll.engine.lifecycle.launch import Launch, made
from atoll.engine.lifecycle.steps import STEPS, Step
from atoll.engine.link.link import Endpoint, LinkError
from atoll.engine.parts import Image, Parts
from atoll.engine.storage.claims import Claims
from atoll.engine.store.record import Record
from atoll.errors import SandboxError, VersionMismatchError, from_os_error
from atoll.settings import Settings
from atoll.wire.agent import HELLO_TIMEOUT, PROTOCOL, SHUTDOWN_GRACE

log = structlog.get_logger(__name__)

ATTEMPTS = 3
"""How often a removal is tried before it is left to the reaper."""


class SeenImage(msgspec.Struct):
    """What an agent says of its image, where the engine does not have the image itself."""

    env: dict[str, str] = {}
    workdir: str = ""


class Hello(msgspec.Struct):
    """First answer of an agent."""

    protocol: int
    generation: int
    version: str = ""
    pid: int = 0
    image: SeenImage | None = None


class Lifecycle:
    """Makes and removes what a running sandbox needs on this host.

    Args:
        parts: the components.
        settings: sizes, timeouts, directories.
    """

    def __init__(self, parts: Parts, settings: Settings) -> None:
        self.parts = parts
        self.settings = settings
        self.faults = Faults(settings.faults)
        self.version = atoll.__version__
        self.claims = Claims()
        self.egress = Enforcing(parts.networks, settings.network, parts.gateway)
        self.building: set[str] = set()
        """Names in use that no record tells of: of image builds, of layers that are copied."""
        self.make_room: Callable[[], Awaitable[bool]] = _no_room
        """Gives up what is only kept ready, for a start that found no room; whether there was some."""

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
        return made(launch.endpoint)

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
        self.faults.at(f"start.{step.name}")

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
                self.faults.at(f"remove.{step.name}")
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

    async def shut_down(self, endpoint: Endpoint, signal: str) -> None:
        """Let the agent end all commands; one that does not answer is ended by `remove`."""
        try:
            header = {"op": "shutdown", "grace": SHUTDOWN_GRACE, "signal": signal}
            await endpoint.call(header, SHUTDOWN_GRACE + 1)
        except (LinkError, SandboxError) as error:
            log.warning("agent did not shut down", host_ref=endpoint.host_ref, reason=str(error))


async def _no_room() -> bool:
    return False


def _milliseconds(took: Mapping[str, float]) -> dict[str, float]:
    return {name: round(seconds * 1000, 1) for name, seconds in took.items()}
