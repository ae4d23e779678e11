"""The engine's hold on the networks of sandboxes without root: `atoll.network.slots` of a user.

What is given to whom is known by the holder, a process that outlives the engine. Where the host has
no nft, or does not let a user use it, sandboxes have loopback only; `way_out` says so.
"""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

import atoll
from atoll.errors import ContainerUnavailableError
from atoll.host import lasting, process, unix
from atoll.host.threads import run_to_end
from atoll.network import plan
from atoll.network.filter import Mode
from atoll.network.rootless import rules
from atoll.network.rules import Redirect
from atoll.network_settings import NetworkSettings

ANSWER_TIMEOUT: Final = 20.0
"""Seconds that the holder has to answer: on a busy host it starts within one."""

TOOL_TIMEOUT: Final = 20.0
"""Seconds that ``ip`` and ``nft`` have: some milliseconds."""

TOOLS: Final = {"nft": "nftables", "ip": "iproute2", "nsenter": "util-linux"}
"""Programs that are needed, and their packages."""

_HOLDER: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from atoll.network.rootless.holder import main; main()"
)
_LOOPBACK: Final = "127.0.0.1"
_LOST: Final = "the process that held this sandbox's network has ended; stop the sandbox"

_log = structlog.get_logger(__name__)


class Slot(msgspec.Struct, frozen=True):
    """The network of one sandbox.

    Its address is the same in every sandbox, so `addresses`, by which a gateway tells sandboxes
    apart, are none: each has listeners of its own.
    """

    netns: Path | None = None
    address: str = _LOOPBACK
    addresses: tuple[str, ...] = ()
    nameservers: tuple[str, ...] = ()


class UserNetworks:
    """Gives each sandbox a namespace of its own. All calls may be repeated.

    Args:
        settings: addresses, and how many namespaces are kept ready.
        folder: its own, 0700; made by `open`.

    Attributes:
        way_out: whether sandboxes have a way out.
        problem: what the host refused, where they have not.
    """

    closes = by_gateway = True

    def __init__(self, settings: NetworkSettings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        addresses = plan.Plan(settings.cidr, settings.cidr6)
        self._address, self._nameserver = addresses.address(0), addresses.gateway(0)
        self._holder: lasting.Running | None = None
        self._given: dict[str, int] = {}
        self._ready: list[int] = []
        self._ports: dict[int, rules.Ports] = {}
        self._modes: dict[int, Mode] = {}  # those that were loaded by this engine
        self._making = asyncio.Lock()
        self._filling: asyncio.Task[None] | None = None
        self.way_out = False
        self.problem: str | None = None

    async def open(self) -> None:
        """Find the holder of an earlier engine, or start one; without the tools there is none."""
        if missing := missing_tools():
            _log.warning("sandboxes have no network", missing=missing)
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not await self._adopt():
            await self._start()
        try:
            self._ready.append(await self._make())
        except ContainerUnavailableError as error:
            self.problem = error.message
            _log.warning("sandboxes have no network", reason=self.problem)
            await self._end()
            return
        self.way_out = True

    async def close(self) -> None:
        """Let go of what is in use, and end the holder if nothing is."""
        if self._filling:
            self._filling.cancel()
            await asyncio.gather(self._filling, return_exceptions=True)
        if not self._given:
            await self._end()

    async def acquire(self, host_ref: str) -> Slot:
        """Return the namespace of *host_ref*, which reaches nothing before the gateway knows it.

        Raises:
            ContainerUnavailableError: none can be made (reason "network").
        """
        if not self.way_out:
            return Slot()
        async with self._making:
            if host_ref not in self._given:
                await self._revive()
                fd = self._ready.pop() if self._ready else await self._make()
                await self._ask(op="give", fd=fd, owner=host_ref)
                self._given[host_ref] = fd
        self._fill()
        return self._slot(self._given[host_ref])

    async def release(self, host_ref: str) -> None:
        """Let go of the namespace; it goes with the last process in it."""
        if (fd := self._given.pop(host_ref, None)) is not None:
            await self._drop(fd)

    async def adopt(self, host_refs: Iterable[str]) -> None:
        """Keep the namespaces of these containers, and let go of all others."""
        kept = set(host_refs)
        for host_ref in set(self._given) - kept:
            await self.release(host_ref)

    async def set_mode(self, host_ref: str, mode: Mode) -> None:
        """Change how it reaches the internet, for connections that exist too.

        Raises:
            ContainerUnavailableError: it cannot be changed (reason "network").
        """
        if not self.way_out:
            return
        if (fd := self._given.get(host_ref)) is None:
            raise _unavailable(_LOST)
        if self._modes.get(fd) != mode:
            await self._load(fd, mode)

    async def set_redirect(self, redirect: Redirect | None) -> None:
        """Do nothing: the gateway is given the listeners of each namespace."""

    async def traffic(self, host_ref: str) -> tuple[int, int]:
        """Return nothing: the gateway, which carries all of it, counts."""
        del host_ref
        return 0, 0

    async def listeners(self, host_ref: str) -> list[int]:
        """Return copies of the listeners of a namespace: of connections, names, names by UDP.

        Raises:
            ContainerUnavailableError: it is not known, or the holder ended (reason "network").
        """
        if (fd := self._given.get(host_ref)) is None:
            raise _unavailable(_LOST)
        return await run_to_end(self._ask_for_files, {"op": "listeners", "fd": fd})

    def _slot(self, fd: int) -> Slot:
        return Slot(netns=self._path(fd), address=self._address, nameservers=(self._nameserver,))

    def _path(self, fd: int) -> Path:
        holder = self._holder.pid if self._holder else 0
        return Path(f"/proc/{holder}/fd/{fd}")

    # Namespaces

    async def _make(self) -> int:
        """Make a namespace and load its packet filter."""
        made = await self._ask(op="make")
        fd, ports = int(made["fd"]), rules.Ports(*made["ports"])
        try:
            self._ports[fd] = ports
            await self._inside(fd, "ip", "-batch", "-", script=rules.addresses(self._address))
            await self._load(fd, "closed")
        except BaseException:
            await self._drop(fd)
            raise
        return fd

    async def _drop(self, fd: int) -> None:
        self._ports.pop(fd, None)
        self._modes.pop(fd, None)
        await self._ask(op="drop", fd=fd)

    async def _load(self, fd: int, mode: Mode) -> None:
        wanted = rules.Filter(
            own=self._address,
            ports=self._ports[fd],
            opened=self._settings.private_ranges,
            max_flows=self._settings.max_connections,
            mode=mode,
        )
        self._modes.pop(fd, None)
        await self._inside(fd, "nft", "-f", "-", script=rules.ruleset(wanted))
        self._modes[fd] = mode

    async def _inside(self, fd: int, *argv: str, script: str) -> None:
        holder = self._holder.pid if self._holder else 0
        enter = [f"--user=/proc/{holder}/ns/user", f"--net={self._path(fd)}"]
        done = await process.run(
            ["nsenter", *enter, "--preserve-credentials", "--", *argv],
            stdin=script.encode(),
            timeout=TOOL_TIMEOUT,
        )
        if done.code:
            reason, _, _ = done.message.partition("\n")
            raise _unavailable(f"{argv[0]}: {reason}")

    def _fill(self) -> None:
        if self._filling is None or self._filling.done():
            self._filling = asyncio.create_task(self._filled(), name="network namespaces")

    async def _filled(self) -> None:
        """Have as many ready as the settings say."""
        with suppress(ContainerUnavailableError):
            while len(self._ready) < self._settings.prepared:
                async with self._making:
                    self._ready.append(await self._make())

    # The holder

    @property
    def _control(self) -> Path:
        return self._folder / "holder.sock"

    @property
    def _state(self) -> Path:
        return self._folder / "holder.json"

    async def _adopt(self) -> bool:
        """Use the holder of an earlier engine; tell whether there is one."""
        with suppress(OSError, msgspec.MsgspecError):
            self._holder = msgspec.json.decode(self._state.read_bytes(), type=lasting.Running)
        if self._holder is None or not lasting.alive(self._holder):
            return False
        try:
            held = (await self._ask(op="list"))["held"]
        except ContainerUnavailableError:
            lasting.kill(self._holder)
            return False
        for fd, owner, ports in held:
            self._ports[fd] = rules.Ports(*ports)
            if owner:
                self._given[owner] = fd
            else:
                await self._drop(fd)
        return True

    async def _revive(self) -> None:
        """Start another holder where the last one ended.

        Sandboxes that run go on with what the gateway has of them, and cannot be changed any more.
        """
        if self._holder is None or lasting.alive(self._holder):
            return
        _log.error("the holder of networks ended", lost=len(self._given))
        for known in (self._given, self._ports, self._modes):
            known.clear()
        self._ready.clear()
        await self._start()

    async def _start(self) -> None:
        self._control.unlink(missing_ok=True)
        package = Path(atoll.__file__).parent.parent
        argv: list[str | Path] = [sys.executable, "-I", "-S", "-c", _HOLDER, package]
        output = os.open(self._folder / "holder.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        listener = unix.listen(self._control)
        try:
            listener.setblocking(True)
            pid = process.launch(argv, [listener.fileno()], output=output)
        finally:
            os.close(output)
            listener.close()
        self._holder = lasting.identified(pid)
        self._state.write_bytes(msgspec.json.encode(self._holder))

    async def _end(self) -> None:
        if self._holder:
            lasting.kill(self._holder)
            with suppress(TimeoutError):
                await asyncio.wait_for(lasting.ended(self._holder), ANSWER_TIMEOUT)
        self._ready.clear()
        self._holder = None

    async def _ask(self, **question: Any) -> dict[str, Any]:
        answer, _ = await run_to_end(self._asked, question, 0)
        return answer

    def _ask_for_files(self, question: dict[str, Any]) -> list[int]:
        return self._asked(question, 3)[1]

    def _asked(self, question: dict[str, Any], files: int) -> tuple[dict[str, Any], list[int]]:
        try:
            with unix.connect(self._control) as connection:
                connection.settimeout(ANSWER_TIMEOUT)
                connection.sendall(json.dumps(question).encode())
                connection.shutdown(socket.SHUT_WR)
                told, found = b"", list[int]()
                while True:
                    chunk, more, _, _ = socket.recv_fds(connection, 1 << 16, files)
                    found += more
                    if not chunk:
                        break
                    told += chunk
            answer: dict[str, Any] = json.loads(told)
        except (OSError, ValueError) as error:
            raise _unavailable(f"the holder of networks does not answer: {error}") from error
        if "error" in answer:
            raise _unavailable(answer["error"])
        return answer, found

    async def list(self) -> list[str]:
        """Return the host_ref of all that have a namespace."""
        return sorted(self._given)


def missing_tools() -> list[str]:
    """Return the packages of programs that are not here."""
    return [package for tool, package in TOOLS.items() if process.find(tool) is None]


def _unavailable(message: str) -> ContainerUnavailableError:
    return ContainerUnavailableError(
        message,
        context={"reason": "network"},
        suggestion="`atoll doctor` tells what this host lets a user do",
    )
