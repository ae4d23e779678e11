"""What a sandbox of a class does at its start before anybody may use it.

Its entry point runs, its required ports answer, its `on_start` has ended. Whoever uses the sandbox
meanwhile waits, except the hook itself and the methods it calls. The wait is bounded: a hook that
fails or hangs is reported, and the sandbox is usable without it.
"""

import asyncio
import time
from typing import TYPE_CHECKING

import structlog

from atoll.engine.link.link import LinkError
from atoll.engine.objects import origin
from atoll.engine.objects.deliveries import Deliveries
from atoll.engine.objects.hooks import Hooks
from atoll.engine.objects.registry import Registry
from atoll.engine.objects.table import Key, Table
from atoll.engine.processes import ports
from atoll.errors import ContainerUnavailableError, ProcessReadyTimeoutError, SandboxError
from atoll.wire.process import StartProcessRequest, WaitForPort

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox

log = structlog.get_logger(__name__)

ENTRYPOINT = "entrypoint"
"""Id of the process that an image's command or a class's `entrypoint` runs as."""

INTERVAL = 0.1
"""Seconds between two tries of a required port."""

_SHELLS = frozenset({"bash", "sh", "ash", "dash", "zsh", "python", "python3", "node"})


def command(own: list[str] | None, image: list[str]) -> list[str]:
    """Return what runs at a start; nothing: no process.

    A shell or interpreter without arguments is no service: its standard input is empty here, so it
    would only end at once. Most images name one.

    Args:
        own: the class's `entrypoint`; None: the image says.
        image: the image's entry point and command.
    """
    if own is not None:
        return own
    alone = len(image) == 1 and image[0].rpartition("/")[2] in _SHELLS
    return [] if alone else image


class Preparing:
    """Starts that are not ready for use yet.

    Args:
        registry: what classes want.
        hooks: tells `on_start`.
        table: objects.
        deliveries: whose calls may pass.
        patience: seconds that ports may take.
    """

    def __init__(
        self,
        registry: Registry,
        hooks: Hooks,
        table: Table,
        deliveries: Deliveries,
        patience: float,
    ) -> None:
        self._registry = registry
        self._hooks = hooks
        self._table = table
        self._deliveries = deliveries
        self._patience = patience
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._closed = False

    async def close(self) -> None:
        """Give up all of it: the engine ends."""
        self._closed = True
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def begin(self, box: "Sandbox") -> None:
        """Begin what the start of *box* has to do, before any use of it."""
        known = self._registry.known(box.namespace)
        options = known.cls.options if known else None
        force = box.entry.existing.in_force
        run = command(options.entrypoint if options else None, force.command if force else [])
        required = options.required_ports if options else []
        if self._closed:
            return  # the next engine tells what is due
        if run or required or self._hooks.has(box.namespace, "on_start"):
            key = box.namespace, box.id
            task = asyncio.create_task(self._prepare(box, run, required))
            self._tasks[key] = task
            task.add_done_callback(lambda done: self._ended(key, done))
        else:
            self._hooks.notify([(box.namespace, box.id)] if known else [])

    def _ended(self, key: Key, task: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled() and (error := task.exception()):
            log.warning("sandbox not ready", namespace=key[0], sandbox=key[1], reason=str(error))

    async def ready(self, box: "Sandbox") -> bool:
        """Wait until *box* may be used.

        Returns:
            True when there was nothing to wait for; else it must be looked at again.

        Raises:
            SandboxError: its ports do not answer.
        """
        key = box.namespace, box.id
        task = self._tasks.get(key)
        if (
            task is None
            or origin.is_preparing()
            or self._deliveries.is_in_hook(origin.calls(), key)
        ):
            return True
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()):
            raise error
        return False

    async def _prepare(self, box: "Sandbox", run: list[str], required: list[int]) -> None:
        with origin.preparing():
            try:
                if run:
                    await self._run(box, run)
                    await self._ports(box, required, ENTRYPOINT)
                await self._settled(box)
                if not run:
                    await self._ports(box, required)
            except LinkError as error:
                raise ContainerUnavailableError(
                    "the sandbox ended while it started", context={"reason": "runtime"}
                ) from error
            except SandboxError as error:
                if self._registry.known(box.namespace):
                    row = await self._table.ensure((box.namespace, box.id))
                    self._hooks.report(row, error)
                raise

    async def _settled(self, box: "Sandbox") -> None:
        """Tell `on_start`; a Worker that hangs costs its time limit once, not at every start."""
        known = self._registry.known(box.namespace)
        if known and self._deliveries.silent(known.project):
            self._hooks.notify([(box.namespace, box.id)])
        else:
            await self._hooks.settle((box.namespace, box.id))

    async def _run(self, box: "Sandbox", argv: list[str]) -> None:
        processes = box.shared.processes
        request = StartProcessRequest(command=argv, process_id=ENTRYPOINT)
        try:
            await processes.start(box, request, None)
        except SandboxError as error:
            log.warning("entry point not started", sandbox=box.id, reason=str(error))
            if self._registry.known(box.namespace):
                raise

    async def _ports(self, box: "Sandbox", required: list[int], process: str | None = None) -> None:
        until = time.monotonic() + self._patience
        for port in required:
            while not await _answers(box, port, process):
                if time.monotonic() > until:
                    raise ProcessReadyTimeoutError(
                        f"nothing listens on the required port {port} of {box.id!r}",
                        context={"port": port, "seconds": self._patience},
                        suggestion="look at the log of the process that should listen there",
                    )
                await asyncio.sleep(INTERVAL)


async def _answers(box: "Sandbox", port: int, process: str | None) -> bool:
    """Whether the port answers; a *process* that should listen there must not have ended."""
    endpoint = box.endpoint
    if endpoint is None:
        raise LinkError("the sandbox is gone")
    wanted = WaitForPort(port=port, mode="tcp")
    if process is not None:
        return (await box.shared.processes.wait_for_port(box, process, wanted)).ready
    return await ports.answer(await ports.connector(endpoint), wanted) is not None
