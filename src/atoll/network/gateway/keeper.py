"""Keeps the node's gateway alive and told: starts it, finds it again, replaces it.

The gateway outlives the engine; its folder holds the control socket, the numbers of its ports and its
log. While it is replaced, connections wait at the listeners, which the engine holds too: nothing gets
past it. The engine is the only one that knows policies for good, so a new gateway is told all of them.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from atoll.errors import ContainerUnavailableError
from atoll.host import process, unix
from atoll.network.gateway import ending, listening
from atoll.network.gateway.client import GatewayClient, GatewayGone, Handle, Notice, unheard
from atoll.network.gateway.handover import Giving, Lend
from atoll.network.gateway.listening import Ports, Sockets
from atoll.network.gateway.protocol import (
    VERSION,
    Configure,
    Done,
    List,
    Listed,
    PinList,
    Pins,
    Put,
    Remove,
    Status,
    StatusReport,
    Stop,
)

START_TIMEOUT = 60.0
"""Seconds that a gateway has to begin: 0.3 s of imports on an idle machine."""

PRESENT_TIMEOUT = 20.0
"""Seconds that a policy waits for a gateway that begins."""

STOP_TIMEOUT = 10.0
"""Seconds that a gateway has to end when it is told to."""

LOOK, HANG = 30.0, 60.0
"""Seconds between two looks whether it answers, and after which it hangs: it decides all in one
thread, and a processor that many wait for is slow."""

PAUSE = 0.5
"""Seconds between a death and the next start, so that a gateway which cannot live costs little."""

_log = structlog.get_logger(__name__)


class _State(msgspec.Struct, frozen=True):
    """What the folder remembers of the gateway that was started last."""

    ports: Ports
    pid: int


class Keeper:
    """The engine's hold on the gateway.

    Args:
        folder: of the gateway, 0700, the engine's own; its logs are in ``logs`` below.
        nameservers: who is asked for names.
        handle: has a Worker's handler called.
        moved: called with the ports when they are known, or changed.
        uid: who the gateway is; None: it is not confined (an engine that is not root).
        trust: files with authorities of servers, besides the host's.
        notice: told of refusals.
        bound: bounds what a process that was just started may take of the host; blocking.
        listeners: where listeners in sandboxes' own networks are from; None: the gateway
            listens on the host, for all.

    Attributes:
        pid: the gateway's process; 0 before `open`.
    """

    def __init__(
        self,
        folder: Path,
        nameservers: Sequence[str],
        handle: Handle,
        moved: Callable[[Ports], None],
        *,
        uid: int | None,
        trust: Sequence[Path] = (),
        bound: Callable[[int], None] | None = None,
        notice: Notice = unheard,
        listeners: Lend | None = None,
    ) -> None:
        self._notice = notice
        self._bound = bound
        self._folder = folder
        self.logs = folder / "logs"
        self._configure = Configure(nameservers=tuple(nameservers))
        self._handle = handle
        self._moved = moved
        self._uid = uid
        self._trust = trust
        self._giving = Giving(folder / "listeners.sock", listeners)
        self._puts: dict[str, Put] = {}
        self._client: GatewayClient | None = None
        self._sockets: Sockets | None = None
        self._ready = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self.pid = 0

    async def open(self) -> None:
        """Find the gateway, or start one. Sandboxes it knows keep their policies until `settle`.

        Raises:
            ContainerUnavailableError: none can be started (reason "network").
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.logs.mkdir(mode=0o700, exist_ok=True)
        if not await self._adopt():
            await self._start()
        self._keeping = asyncio.create_task(self._keep(), name="egress gateway keeper")

    async def settle(self) -> None:
        """Forget sandboxes that nobody has put since `open`: they are no more."""
        client = await self._present()
        for host_ref in (await client.ask(List(), Listed)).versions:
            if host_ref not in self._puts:
                await client.ask(Remove(host_ref=host_ref), Done)

    async def close(self, *, stop: bool) -> None:
        """Let go of the gateway; *stop*: end it, because no sandbox is left."""
        if self._keeping:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        if self._client:
            if stop:
                with suppress(GatewayGone, ValueError):
                    await self._client.ask(Stop(), Done, timeout=STOP_TIMEOUT)
                await asyncio.to_thread(ending.end, self.pid, self.logs, STOP_TIMEOUT)
            await self._client.close()
        if self._sockets:
            self._sockets.close()

    @property
    def ready(self) -> bool:
        """Whether it answers now."""
        return self._ready.is_set()

    async def put(self, put: Put) -> None:
        """Have a policy in force when this returns.

        Raises:
            ContainerUnavailableError: there is no gateway (reason "network").
            ValueError: the gateway refuses it.
        """
        self._puts[put.policy.host_ref] = put
        client = await self._present()
        try:
            await client.ask(put, Done)
            await self._giving.give(client, put.policy.host_ref)
        except ValueError:
            if self._puts.get(put.policy.host_ref) is put:
                del self._puts[put.policy.host_ref]
            raise
        except GatewayGone as error:
            if not client.ended:
                raise _unavailable("the egress gateway does not answer") from error
            if self._client is client:
                self._ready.clear()
            await self._present()  # the next one, which was told all policies as it began

    async def remove(self, host_ref: str) -> None:
        """Forget a sandbox. A gateway that is gone knows none."""
        self._puts.pop(host_ref, None)
        self._giving.forget(host_ref)
        if self._client:
            with suppress(GatewayGone):
                await self._client.ask(Remove(host_ref=host_ref), Done)

    async def status(self) -> StatusReport:
        """Return how the gateway does; raise as `put`."""
        try:
            return await (await self._present()).ask(Status(), StatusReport)
        except GatewayGone as error:
            raise _unavailable("the egress gateway ended") from error

    async def pins(self, host_ref: str) -> PinList:
        """Return the pins of a sandbox; raise as `put`."""
        try:
            return await (await self._present()).ask(Pins(host_ref=host_ref), PinList)
        except GatewayGone as error:
            raise _unavailable("the egress gateway ended") from error

    async def _present(self) -> GatewayClient:
        try:
            async with asyncio.timeout(PRESENT_TIMEOUT):
                await self._ready.wait()
        except TimeoutError as error:
            raise _unavailable("the egress gateway does not start") from error
        if self._client is None:
            raise _unavailable("the egress gateway ended")
        return self._client

    # Its life

    @property
    def _control(self) -> Path:
        return self._folder / "control.sock"

    @property
    def _state(self) -> Path:
        return self._folder / "gateway.json"

    async def _adopt(self) -> bool:
        """Connect to the gateway of an earlier engine; tell whether there is one like ours."""
        state = self._last()
        if state is None:
            return False
        try:
            client = await GatewayClient.connect(self._control, self._handle, self._notice)
        except OSError:
            return False
        try:
            report = await client.ask(Status(), StatusReport)
            await client.ask(self._configure, Done)
        except (GatewayGone, ValueError):
            report = None
        if report is None or report.version != VERSION:
            await client.close()
            await asyncio.to_thread(ending.end, state.pid, self.logs)
            return False
        if self._bound and ending.is_gateway(state.pid, self.logs):  # by what is set now
            await asyncio.to_thread(self._bound, state.pid)
        self._moved(state.ports)
        self._serve_by(client, report.pid)
        return True

    async def _start(self) -> None:
        """Start a gateway and tell it everything."""
        if self._sockets is None:
            last = self._last()
            ports = last.ports if last else None
            none = self._giving.needed
            self._sockets = Sockets([], [], []) if none else listening.listen(ports)
        ports = self._sockets.ports
        self._giving.begin()
        self._control.unlink(missing_ok=True)
        pid = self._launch(self._sockets)
        draft = self._state.with_suffix(".new")
        draft.write_bytes(msgspec.json.encode(_State(ports, pid)))
        draft.replace(self._state)
        client: GatewayClient | None = None
        try:
            if self._bound:
                await asyncio.to_thread(self._bound, pid)
            async with asyncio.timeout(START_TIMEOUT):
                client = await GatewayClient.connect(self._control, self._handle, self._notice)
                await client.ask(self._configure, Done, timeout=START_TIMEOUT)
                for host_ref, put in list(self._puts.items()):
                    await client.ask(put, Done)
                    await self._giving.give_again(client, host_ref)
        except BaseException as error:  # cancelled too: nobody else would end it
            ending.end(pid, self.logs)
            if client:
                await client.close()
            if not isinstance(error, (OSError, TimeoutError, GatewayGone)):
                raise
            raise _unavailable(f"the egress gateway does not start; see {self._output}") from error
        self._moved(ports)
        self._serve_by(client, pid)

    def _serve_by(self, client: GatewayClient, pid: int) -> None:
        self._client, self.pid = client, pid
        self._ready.set()

    @property
    def _output(self) -> Path:
        return self._folder / "gateway.log"

    def _launch(self, sockets: Sockets) -> int:
        listener = unix.listen(self._control)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        output = os.open(self._output, flags, 0o600)
        handover = unix.receiver(self._giving.path)
        try:
            descriptors = [listener.fileno(), handover.fileno()]
            argv: list[str | Path] = [sys.executable, "-I", "-m", "atoll.network.gateway"]
            argv += ["--control", "3", "--handover", "4", "--logs", self.logs]
            names = ("--connections", "--dns-tcp", "--dns-udp")
            for name, group in zip(names, sockets, strict=True):
                argv += [name, *(str(3 + len(descriptors) + at) for at in range(len(group)))]
                descriptors += [one.fileno() for one in group]
            if self._uid is not None:
                argv += ["--uid", str(self._uid)]
            for file in self._trust:
                argv += ["--trust", file]
            return process.launch(argv, descriptors, output=output)
        finally:
            os.close(output)
            listener.close()
            handover.close()

    def _last(self) -> _State | None:
        try:
            return msgspec.json.decode(self._state.read_bytes(), type=_State)
        except (OSError, msgspec.MsgspecError):
            return None

    async def _keep(self) -> None:
        """Start the gateway again whenever it ends, or does not answer any more."""
        while self._client:
            await self._over(self._client)
            self._ready.clear()
            _log.warning("the egress gateway is started again", log=str(self._output))
            await self._client.close()
            await asyncio.to_thread(ending.end, self.pid, self.logs)
            await self._again()

    async def _over(self, client: GatewayClient) -> None:
        """Return when *client* has ended, or its gateway hangs."""
        with suppress(GatewayGone, ValueError):
            while not client.ended:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK):
                        await client.gone()
                await client.ask(Status(), StatusReport, timeout=HANG)

    async def _again(self) -> None:
        while True:
            await asyncio.sleep(PAUSE)
            try:
                await self._start()
                return
            except (ContainerUnavailableError, OSError) as error:
                _log.error("the egress gateway cannot be started", error=str(error))


def _unavailable(message: str) -> ContainerUnavailableError:
    return ContainerUnavailableError(message, context={"reason": "network"})
