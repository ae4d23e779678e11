"""A runtime whose agents are coroutines of the test, and components that count what exists."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import atoll
from atoll.engine.bare import parts as bare
from atoll.engine.egress.direct import DirectLog
from atoll.engine.parts import Forgotten, Hear, Parts
from atoll.errors import SandboxError
from atoll.network.filter import Mode
from atoll.network.gateway.client import Handle
from atoll.network.gateway.protocol import Call, HandlerAnswer, Put, SandboxStatus, StatusReport
from atoll.runtime.base import Container, ContainerSpec, Usage
from atoll.storage.idmap import IdRanges
from atoll.wire import frames
from atoll.wire.frames import Frame, Kind

Script = Callable[["Peer", dict[str, Any]], Awaitable[None]]


class Peer:
    """The agent's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.decoder = frames.Decoder()
        self.received: list[Frame] = []

    async def next(self) -> Frame:
        while not self.received:
            data = await self.reader.read(1 << 16)
            if not data:
                raise ConnectionResetError
            self.received += self.decoder.feed(data)
        return self.received.pop(0)

    async def send(self, kind: int, body: Any = b"") -> None:
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        await self.raw(frames.encode(kind, payload))

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


async def echo(peer: Peer, header: dict[str, Any]) -> None:
    """A well-behaved exec: prints its arguments and exits with 0."""
    data = " ".join(header["command"]).encode() + b"\n"
    await peer.send(Kind.STARTED, {"pid": 7})
    await peer.raw(frames.encode_output(Kind.STDOUT, 0, 0, data))
    await peer.send(Kind.EXITED, {"exit_code": 0, "stdout_bytes": len(data)})


class ScriptedRuntime:
    """Implements `Runtime`; `scripts` answers operations by name."""

    name = level = "scripted"
    by_namespace = True
    takes_files = True
    own_ids = True
    unlimited: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.running: dict[str, ContainerSpec] = {}
        self.paused: set[str] = set()
        self.cut: set[str] = set()  # whose hosts answer nobody
        self.abandoned: list[str] = []
        self.names: dict[str, str] = {}
        self.uncounted: dict[str, int] = {}
        self.generations: dict[str, int] = {}
        self.pid = 1  # of every container
        self.starts = 0
        self.delay = 0.0
        self.tells = True  # the peers of a container that it ends
        self.scripts: dict[str, Script] = {"exec": echo}
        self.seen: list[dict[str, Any]] = []
        self.failures: dict[str, Exception] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: dict[str, list[asyncio.StreamWriter]] = {}

    async def prepare(self, host_ref: str, id_base: int, id_count: int) -> None:
        pass

    async def start(self, spec: ContainerSpec) -> Container:
        self.starts += 1
        self.running[spec.host_ref] = spec
        await asyncio.sleep(self.delay)
        if failure := self.failures.get("start"):
            raise failure
        return Container(host_ref=spec.host_ref, pid=1)

    async def dial(self, run_dir: Path, host_ref: str) -> socket.socket:
        if host_ref not in self.running:
            raise ConnectionRefusedError
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        task = asyncio.create_task(self._serve(theirs, host_ref))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return ours

    async def _serve(self, connection: socket.socket, host_ref: str) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        self._connections.setdefault(host_ref, []).append(writer)
        peer = Peer(reader, writer)
        try:
            header = json.loads((await peer.next()).payload)
            self.seen.append(header)
            await self._answer(peer, header, host_ref)
        except OSError:
            pass
        finally:
            writer.close()

    async def _answer(self, peer: Peer, header: dict[str, Any], host_ref: str) -> None:
        if script := self.scripts.get(header["op"]):
            await script(peer, header)
        elif header["op"] == "hello":
            generation = self.generations.get(host_ref, self.running[host_ref].generation)
            hello = {"protocol": 1, "generation": generation, "version": atoll.__version__}
            await peer.send(Kind.REPLY, hello)
        elif header["op"] == "assign":
            self.generations[host_ref] = header["generation"]
            await peer.send(Kind.REPLY, {})
        elif header["op"] == "operations":
            await peer.send(Kind.REPLY, {"operations": []})
        else:
            await peer.send(Kind.REPLY, {})

    def kill(self, host_ref: str) -> None:
        """End the container as if it had died by itself."""
        self.running.pop(host_ref, None)
        for writer in self._connections.pop(host_ref, []) if self.tells else ():
            writer.transport.abort()

    async def find(self, host_ref: str) -> Container | None:
        return Container(host_ref=host_ref, pid=self.pid) if host_ref in self.running else None

    async def list(self) -> list[str]:
        return [*self.running]

    async def remove(self, host_ref: str) -> None:
        self.kill(host_ref)

    async def end(self, host_ref: str, timeout: float) -> bool:
        if host_ref in self.cut:
            await asyncio.sleep(timeout)
            return False
        self.kill(host_ref)
        return True

    async def abandon(self, host_ref: str) -> None:
        self.abandoned.append(host_ref)
        self.kill(host_ref)

    async def pause(self, host_ref: str) -> None:
        self.paused.add(host_ref)
        if failure := self.failures.get("pause"):
            raise failure

    async def resume(self, host_ref: str) -> None:
        self.paused.discard(host_ref)

    async def rename(self, host_ref: str, hostname: str) -> None:
        self.names[host_ref] = hostname

    async def usage(self, host_ref: str) -> Usage:
        uncounted = self.uncounted.get(host_ref, 0)
        return Usage(memory=0, cpu_time=0, pids=0, oom_kills=0, uncounted=uncounted)


class Roots(bare.BareRoots):
    """Counts what is mounted; fails on request."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.base = base
        self.mounted: set[str] = set()
        self.attached: list[tuple[str, bool]] = []  # target, read-only
        self.failure: Exception | None = None

    async def attach(self, host_ref: str, target: str, layer_id: str, *, read_only: bool) -> None:
        assert host_ref in self.mounted
        assert (self.base / layer_id).is_dir()
        self.attached.append((target, read_only))

    async def mount(
        self, host_ref: str, lowers: Sequence[Path], layer_id: str, id_base: int, id_count: int
    ) -> Path:
        self.mounted.add(host_ref)
        if self.failure:
            raise self.failure
        return await super().mount(host_ref, lowers, layer_id, id_base, id_count)

    async def unmount(self, host_ref: str) -> None:
        self.mounted.discard(host_ref)

    async def list(self) -> list[str]:
        return [*self.mounted]


class Networks(bare.BareNetworks):
    """Counts slots in use; fails on request."""

    closes = True

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.modes: dict[str, Mode] = {}
        self.switched: list[Mode] = []
        self.failure: Exception | None = None

    async def acquire(self, host_ref: str) -> bare.BareSlot:
        self.used.add(host_ref)
        if self.failure:
            raise self.failure
        return await super().acquire(host_ref)

    async def set_mode(self, host_ref: str, mode: Mode) -> None:
        assert host_ref in self.used
        if self.mode(host_ref) != mode:
            self.switched.append(mode)
        self.modes[host_ref] = mode

    def mode(self, host_ref: str) -> Mode:
        return self.modes.get(host_ref, "closed")

    async def traffic(self, host_ref: str) -> tuple[int, int]:
        return (7, 8) if host_ref in self.used else (0, 0)

    async def release(self, host_ref: str) -> None:
        self.used.discard(host_ref)
        self.modes.pop(host_ref, None)

    async def list(self) -> list[str]:
        return [*self.used]


class Gateway:
    """Remembers what it is told; fails on request."""

    def __init__(self, folder: Path, networks: Networks) -> None:
        self.logs, self.direct = folder / "logs", DirectLog(folder / "direct")
        self.answer: Handle = _no_handler
        self.hear: Hear = lambda _key, _decision: None
        self.forgotten: Forgotten = lambda _key: None
        self.ready = True
        self.told: list[Put] = []
        self.known: dict[str, Put] = {}
        self.modes: list[Mode] = []  # of the slot, when it was told
        self.failure: SandboxError | None = None
        self._networks = networks

    async def put(self, put: Put) -> None:
        if self.failure:
            raise self.failure
        self.told.append(put)
        self.modes.append(self._networks.mode(put.policy.host_ref))
        self.known[put.policy.host_ref] = put

    async def remove(self, host_ref: str) -> None:
        self.known.pop(host_ref, None)

    async def settle(self) -> None:
        return

    async def status(self) -> StatusReport:
        counts = SandboxStatus(
            connections=1, allowed=2, refused=3, handled=4, bytes_up=5, bytes_down=6
        )
        return StatusReport(
            version=1, pid=1, uptime=1.0, sandboxes=dict.fromkeys(self.known, counts)
        )


async def _no_handler(call: Call) -> HandlerAnswer:
    raise AssertionError(call)


class World:
    """All components of one engine, and what exists in them."""

    def __init__(self, state_dir: Path) -> None:
        self.runtime = ScriptedRuntime()
        self.state_dir = state_dir
        self.layers = bare.BareLayers(state_dir / "layers")
        self.roots = Roots(state_dir / "layers")
        self.networks = Networks()
        self.gateway: Gateway | None = Gateway(state_dir / "egress", self.networks)
        self.claims = state_dir / "ids"
        self.ids = IdRanges(1 << 20, 1 << 16, "e0", self.claims)

    def parts(self) -> Parts:
        return Parts(
            images=bare.BareImages(),
            layers=self.layers,
            roots=self.roots,
            networks=self.networks,
            ids=self.ids,
            runtimes={"scripted": self.runtime},
            gateway=self.gateway,
        )

    def left(self) -> dict[str, object]:
        """What of any start is there; everything is empty when nothing was left behind."""
        found = {
            "containers": set(self.runtime.running),
            "roots": self.roots.mounted,
            "networks": self.networks.used,
            "policies": self.gateway.known if self.gateway else None,
            "ids": {path.name for path in self.claims.glob("*")},
            "directories": {path.name for path in (self.state_dir / "run").iterdir()},
        }
        return {name: what for name, what in found.items() if what}
