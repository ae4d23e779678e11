"""The `container` level: runs each sandbox with crun or runc. I/O only; decisions are its siblings'.

What a container leaves on the host is found again from its `host_ref` alone: a record in
``<state_dir>/oci/containers``, written before anything else is made, and a cgroup of that name.
Whether a process is the container's is decided by its cgroup, which survives an engine that was
killed at any moment and cannot be mistaken the way a process id can.

The runtime's own ``delete`` is not used: it takes 17 to 118 ms and does nothing here that is not
done by killing the cgroup and removing directories we named ourselves.
"""

import asyncio
import json
import os
import resource
import shutil
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from atoll.errors import ContainerUnavailableError, SandboxError
from atoll.host import netlink, privacy, process, unix, uts
from atoll.host.threads import run_to_end
from atoll.runtime.base import Container, ContainerSpec, Usage
from atoll.runtime.configuration import configuration
from atoll.runtime.oci import agent_bundle, bundle, cgroup, cli, unusable
from atoll.runtime.oci.agent_bundle import AgentBundle
from atoll.runtime.oci.cgroup_files import Limits
from atoll.runtime.oci.userns import UserNamespaces
from atoll.runtime.oci.verdict import verdict, without
from atoll.settings import MIB, RuntimeSettings, StorageSettings

LOG_TAIL: Final = 4_000
"""Bytes of the agent's log that are quoted in an error."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What must be known to find and remove a container. Lives until `remove` is done."""

    run_dir: str
    agent_dir: str


class OciRuntime:
    """Drives one OCI runtime. Make it with `open`."""

    level = "container"
    folder = "oci"  # in the state directory
    by_namespace = True
    takes_files = True
    own_ids = True
    unlimited: tuple[str, ...] = ()

    def __init__(
        self,
        choice: cli.Choice,
        hierarchies: cgroup.Hierarchies,
        host: bundle.Host,
        agent: AgentBundle,
        engine_id: str,
        state_dir: Path,
        timeout: float,
    ) -> None:
        self.name = choice.name
        self.choice = choice
        self._hierarchies, self._host, self.agent = hierarchies, host, agent
        self._engine_id, self._timeout = engine_id, timeout
        self._records = state_dir / self.folder / "containers"
        self._root = state_dir / self.folder / "run"
        self._logs: dict[str, int] = {}
        self._userns = UserNamespaces()

    @classmethod
    async def open(
        cls, settings: RuntimeSettings, storage: StorageSettings, engine_id: str
    ) -> Self:
        """Choose the runtime, build the agent's interpreter if needed, and return the driver.

        Args:
            settings: of the runtime.
            storage: where state and caches are.
            engine_id: short id that keeps engines of one host apart; part of cgroup names.

        Raises:
            RuntimeNotAvailableError: this host has no runtime that works.
        """
        hierarchies = cgroup.mounted()
        choice = cli.choose(await cli.probe(), settings.oci, hierarchies.mode)
        agent = await agent_bundle.build(storage.cache_dir)
        return await cls._opened(choice, agent, settings, storage, engine_id)

    @classmethod
    async def _opened(
        cls,
        choice: cli.Choice,
        agent: AgentBundle,
        settings: RuntimeSettings,
        storage: StorageSettings,
        engine_id: str,
    ) -> Self:
        host = bundle.Host(
            machine=os.uname().machine,
            nofile=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
            agent_dir=agent.path,
            loader=agent.loader,
            agent=bundle.AgentLimits(
                memory=settings.agent_memory_mib * MIB, pids=settings.agent_pids
            ),
        )
        timeout = settings.start_timeout
        runtime = cls(choice, cgroup.mounted(), host, agent, engine_id, storage.state_dir, timeout)
        for directory in (runtime._records, runtime._root):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        agent_bundle.adopt(agent, engine_id, storage.state_dir)
        await asyncio.to_thread(agent_bundle.collect, agent)
        return runtime

    async def prepare(self, host_ref: str, id_base: int, id_count: int) -> None:
        """Make what a start needs and what takes no root: 4 ms that others take at the same time."""
        await run_to_end(self._userns.prepare, host_ref, id_base, id_count)

    async def start(self, spec: ContainerSpec) -> Container:
        """Create and start the container; its agent listens when this returns.

        Nothing of it is left behind when it fails.

        Raises:
            ContainerUnavailableError: the runtime refused; `context.reason` is "runtime".
        """
        try:
            return await self._start(spec)
        except BaseException as error:
            await _in_full(self.remove, spec.host_ref)
            if isinstance(error, SandboxError) or not isinstance(error, OSError):
                raise
            raise self._unavailable(error, spec) from error

    def _unavailable(self, error: OSError, spec: ContainerSpec) -> ContainerUnavailableError:
        """TimeoutError is one of those, and has nothing to say for itself."""
        late = f"{self.name} did not finish within {self._timeout:g} s"
        return ContainerUnavailableError(
            without(str(error), self._private(spec)) or late,
            context={"reason": "runtime", "runtime": self.name},
        )

    async def _start(self, spec: ContainerSpec) -> Container:
        with ExitStack() as opened:
            await run_to_end(self._prepare, spec, opened)
            descriptors = self._descriptors(spec, opened)
            log = self._log(spec.host_ref)
            argv = self._argv(spec, len(descriptors))
            code = await process.run_handing_over(
                argv, descriptors, output=log, timeout=self._timeout
            )
        told = _text(spec.run_dir / "runtime.log")
        if error := verdict(
            self.name,
            "run",
            code,
            told,
            stderr=self.log_tail(spec.host_ref),
            private=self._private(spec),
        ):
            raise error
        return Container(host_ref=spec.host_ref, pid=int(_text(spec.run_dir / "pid")))

    def _argv(self, spec: ContainerSpec, fds: int) -> list[str]:
        return cli.run_argv(
            self.choice,
            root=self._root,
            log=spec.run_dir / "runtime.log",
            bundle=spec.run_dir,
            pid_file=spec.run_dir / "pid",
            name=spec.host_ref,
            fds=fds,
            enter=cli.entering(spec.netns),
        )

    def _private(self, spec: ContainerSpec) -> dict[str, str]:
        """Paths of the host that no caller is told → what stands for them."""
        sources = {str(mount.source): f"source of {mount.target}" for mount in spec.mounts}
        return sources | {
            str(spec.rootfs): "",  # what is left is the path inside
            str(spec.run_dir): "(run)",
            str(self.agent.path): bundle.AGENT_DIR,
            str(self._root.parent.parent): "(state)",
        }

    def _prepare(self, spec: ContainerSpec, opened: ExitStack) -> None:
        """Make everything but the descriptors: the record first, so that it can be removed."""
        record = Record(run_dir=str(spec.run_dir), agent_dir=str(self.agent.path))
        _write(self._records / spec.host_ref, msgspec.json.encode(record))
        # Runtimes have no words for a source that is missing; this has.
        targets = {m.target: stat.S_ISDIR(m.source.stat().st_mode) for m in spec.mounts}
        unusable.clear(spec.rootfs, dict.fromkeys(bundle.identity_files(spec), False) | targets)
        spec.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        agent_bundle.use(self.agent.path, spec.host_ref, spec.run_dir)
        for target, content in bundle.identity_files(spec).items():
            _write(bundle.identity_source(spec, target), content.encode(), mode=0o444)
        config = json.dumps(self._config(spec, opened)).encode()
        _write(spec.run_dir / "config.json", config)
        self._cgroup(spec.host_ref).make(self._limits(spec))

    def _config(self, spec: ContainerSpec, opened: ExitStack) -> dict[str, Any]:
        agent_cgroup = cgroup.path_of(self._engine_id, spec.host_ref) / "agent"
        userns = self._userns.take(spec.host_ref, spec.id_base, spec.id_count)
        opened.callback(os.close, userns)
        named = Path(f"/proc/{os.getpid()}/fd/{userns}")
        return bundle.config(spec, self._host, agent_cgroup, named)

    def _limits(self, spec: ContainerSpec) -> Limits:
        return Limits(memory=spec.memory, cpu=spec.cpu, pids=spec.pids)

    def _descriptors(self, spec: ContainerSpec, opened: ExitStack) -> list[int]:
        """Return what the agent inherits, as 3, 4, …: see README.md "Descriptors"."""
        group = self._cgroup(spec.host_ref)
        listener = opened.enter_context(_listen(spec.run_dir))
        procs = [_open(path, os.O_WRONLY, opened) for path in group.procs_files()]
        events = [
            _open(file, os.O_RDONLY, opened)
            for file in (group.memory_events_file(), group.pids_events_file())
        ]
        config = _in_memory("atoll-config", opened)
        os.pwrite(config, agent_config(spec, len(procs)), 0)
        return [listener.fileno(), config, *procs, *events]

    def _log(self, host_ref: str) -> int:
        """Return the agent's stdout and stderr: memory that counts as the agent's own.

        A file on the host's disk could be filled by whoever takes the agent over; this is
        bounded by its cgroup. It is for diagnosis, so it may go with the engine.
        """
        self._drop_log(host_ref)
        self._logs[host_ref] = privacy.memory_file("atoll-agent-log")
        return self._logs[host_ref]

    def _drop_log(self, host_ref: str) -> None:
        if (log := self._logs.pop(host_ref, None)) is not None:
            os.close(log)

    def log_tail(self, host_ref: str) -> str:
        """Return the end of what the agent printed; empty when this engine did not start it."""
        if (log := self._logs.get(host_ref)) is None:
            return ""
        start = max(0, os.fstat(log).st_size - LOG_TAIL)
        return os.pread(log, LOG_TAIL, start).decode(errors="replace")

    async def dial(self, run_dir: Path, host_ref: str) -> socket.socket:
        """Return a fresh, non-blocking connection to the container's agent.

        Raises:
            ConnectionError: nobody listens there (any more).
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            with unix.address(run_dir / "agent.sock") as path:
                await asyncio.get_running_loop().sock_connect(connection, path)
            unix.enlarge_buffer(connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, FileNotFoundError):
                raise ConnectionRefusedError(f"{host_ref} has no socket") from error
            raise
        return connection

    async def find(self, host_ref: str) -> Container | None:
        """Return the container if its init is alive."""
        if (record := self._record(host_ref)) is None:
            return None
        pid = int(_text(Path(record.run_dir, "pid")) or 0)
        alive = pid > 0 and self._cgroup(host_ref).holds(pid)
        return Container(host_ref=host_ref, pid=pid) if alive else None

    async def list(self) -> list[str]:
        """Return the host_ref of every container of this engine, running or dead."""
        return sorted(path.name for path in self._records.iterdir() if path.suffix != ".new")

    async def remove(self, host_ref: str) -> None:
        """Kill everything in the container and remove what the driver made for it."""
        await run_to_end(self._remove, host_ref)

    def _remove(self, host_ref: str) -> None:
        group = self._cgroup(host_ref)
        cgroup.kill(group)
        group.remove()
        self._drop_log(host_ref)
        self._userns.drop(host_ref)
        shutil.rmtree(self._root / host_ref, ignore_errors=True)
        if record := self._record(host_ref):
            shutil.rmtree(record.run_dir, ignore_errors=True)
            agent_bundle.release(Path(record.agent_dir), host_ref)
        (self._records / host_ref).unlink(missing_ok=True)

    async def pause(self, host_ref: str) -> None:
        """Freeze all processes; return when they are frozen.

        Raises:
            TimeoutError: not all of them were frozen within 2 s; they run again.
        """
        await run_to_end(cgroup.freeze, self._cgroup(host_ref))

    async def resume(self, host_ref: str) -> None:
        """Let frozen processes run."""
        self._cgroup(host_ref).set_frozen(False)

    async def rename(self, host_ref: str, hostname: str) -> None:
        """Change the host name inside, in the kernel and in /etc/hostname."""
        if (record := self._record(host_ref)) and (found := await self.find(host_ref)):
            file = Path(record.run_dir, "hostname")
            # In place: the file is bound into the sandbox, a new one would not be.
            await run_to_end(file.write_text, hostname + "\n")
            await run_to_end(uts.set_hostname, found.pid, hostname)

    async def usage(self, host_ref: str) -> Usage:
        """Return what the container uses now."""
        used = self._cgroup(host_ref).usage()
        if (container := await self.find(host_ref)) is None:
            return used
        uncounted = await asyncio.to_thread(netlink.queued, container.pid)
        return msgspec.structs.replace(used, uncounted=uncounted)

    def _cgroup(self, host_ref: str) -> cgroup.Cgroup:
        return cgroup.of(self._hierarchies, self._engine_id, host_ref)

    def _record(self, host_ref: str) -> Record | None:
        with suppress(FileNotFoundError):
            return msgspec.json.decode((self._records / host_ref).read_bytes(), type=Record)
        return None


def agent_config(spec: ContainerSpec, procs: int) -> bytes:
    """Descriptor 4; see `atoll.agent.config`."""
    events = 5 + procs
    told = configuration(
        spec,
        listen=3,
        procs=list(range(5, events)),
        memory_events=events,
        pids_events=events + 1,
    )
    return json.dumps(told).encode()


async def _in_full(step: Callable[[str], Awaitable[None]], host_ref: str) -> None:
    """Run a clean-up to its end, also while the caller is being cancelled."""
    task = asyncio.ensure_future(step(host_ref))
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    task.result()


def _listen(run_dir: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    (run_dir / "agent.sock").unlink(missing_ok=True)
    with unix.address(run_dir / "agent.sock") as path:
        listener.bind(path)
    listener.listen(unix.BACKLOG)
    return listener


def _open(path: Path, flags: int, opened: ExitStack) -> int:
    fd = os.open(path, flags | os.O_CLOEXEC)
    opened.callback(os.close, fd)
    return fd


def _in_memory(name: str, opened: ExitStack) -> int:
    fd = privacy.memory_file(name)
    opened.callback(os.close, fd)
    return fd


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def _write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write atomically: whoever reads it after a crash finds all of it or nothing."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, mode)  # whatever our umask is
        file.write(content)
    draft.rename(path)
