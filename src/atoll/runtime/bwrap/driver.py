"""The `bwrap` level: each sandbox is a bubblewrap, started by a user who is not root.

A sandbox's first process keeps it alive, and its end takes everything with it: no mount or address is
left on the host, and of control groups, where there are any, empty ones. What must survive an engine is in ``<state_dir>/bwrap/<host_ref>``,
written before anything else is made, and again with the process's identity before that process is
told its configuration. The agent ends by itself when it is told none, so one whose engine died in
between needs nobody to find it.
"""

import asyncio
import fcntl
import json
import os
import resource
import shutil
import socket
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import msgspec

import atoll
from atoll.errors import (
    ContainerUnavailableError,
    SandboxError,
)
from atoll.host import overlay, process, procfs, unix
from atoll.host.threads import run_to_end
from atoll.runtime.base import Container, ContainerSpec, Mount, Usage
from atoll.runtime.bwrap import command, filter, groups, handover, program, tree
from atoll.runtime.bwrap.groups import Groups
from atoll.runtime.bwrap.limits import MemoryWatch, Watched, kills, make_events, score
from atoll.runtime.bwrap.records import Record, Records
from atoll.runtime.oci import agent_bundle, bundle, cgroup
from atoll.runtime.oci.agent_bundle import AgentBundle
from atoll.runtime.oci.bundle import AgentLimits
from atoll.runtime.oci.verdict import without
from atoll.settings import MIB, RuntimeSettings, StorageSettings

LOG_SIZE: Final = 1 << 18
"""Bytes of the agent's output that are kept: in memory that can grow no further."""

LOG_TAIL: Final = 4_000
"""Bytes of it that are quoted in an error."""

ORPHAN_TIMEOUT: Final = 5.0
"""Seconds for a sandbox to end that was told no configuration."""

_LAUNCH: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from atoll.runtime.bwrap.launcher import main; main()"
)
"""Without site packages, which cost as much as all the rest."""


class BwrapRuntime:
    """Drives bubblewrap. Make it with `open`."""

    name = "bwrap"
    level = "bwrap"
    by_namespace = False
    takes_files = True
    own_ids = True

    def __init__(
        self,
        host: command.Host,
        agent: AgentBundle,
        groups: Groups | None,
        state_dir: Path,
        timeout: float,
    ) -> None:
        self._host, self.agent, self._timeout = host, agent, timeout
        self._groups, self._state_dir = groups, state_dir
        self._records = Records(state_dir / "bwrap")
        self._filter = filter.program(os.uname().machine)
        self._logs: dict[str, int] = {}
        self.watch = MemoryWatch()

    @property
    def unlimited(self) -> tuple[str, ...]:
        """See `Runtime.unlimited`."""
        return groups.unlimited(self._groups.part.controllers if self._groups else ())

    @classmethod
    async def open(
        cls, settings: RuntimeSettings, storage: StorageSettings, engine_id: str
    ) -> "BwrapRuntime":
        """Find bubblewrap, build the agent's interpreter if needed, and return the driver.

        Raises:
            RuntimeNotAvailableError: this host has none that can be used.
        """
        chosen = await program.choose(program.candidates())
        agent = await agent_bundle.build(storage.cache_dir)
        masked, read_only = command.present()
        host = command.Host(
            program=chosen.path,
            agent_dir=agent.path,
            loader=agent.loader,
            nofile=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
            masked=masked,
            read_only=read_only,
        )
        limits = AgentLimits(memory=settings.agent_memory_mib * MIB, pids=settings.agent_pids)
        taken = await asyncio.to_thread(Groups.take, groups.own(), limits)
        runtime = cls(host, agent, taken, storage.state_dir, settings.start_timeout)
        runtime._records.open()
        agent_bundle.adopt(agent, engine_id, storage.state_dir)
        await asyncio.to_thread(agent_bundle.collect, agent)
        for host_ref in await runtime.list():
            runtime._watch(host_ref)
        return runtime

    def _watch(self, host_ref: str) -> None:
        """Look after the memory of a sandbox, unless the kernel does."""
        record = self._records.read(host_ref)
        if record and record.pid and "memory" not in groups.held(record.group):
            one = Watched(
                record.pid,
                record.identity,
                record.memory,
                handover.events(record.run_dir),
                score(record.pid) if record.score is None else record.score,
            )
            self.watch.add(host_ref, one)

    async def prepare(self, host_ref: str, id_base: int, id_count: int) -> None:
        """See `Runtime.prepare`; there is nothing to do."""

    async def start(self, spec: ContainerSpec) -> Container:
        """See `Runtime.start`."""
        try:
            return await self._start(spec)
        except BaseException as error:
            await self.remove(spec.host_ref)
            if isinstance(error, SandboxError) or not isinstance(error, OSError):
                raise
            late = f"bubblewrap did not finish within {self._timeout:g} s"
            raise self._unavailable(spec, str(error) or late) from error

    async def _start(self, spec: ContainerSpec) -> Container:
        run_dir, agent_dir = str(spec.run_dir), str(self.agent.path)
        group = str(self._groups.path(spec.host_ref)) if self._groups else ""
        record = Record(run_dir=run_dir, agent_dir=agent_dir, memory=spec.memory, group=group)
        await run_to_end(self._prepare, spec, record)
        with ExitStack() as opened:
            config, info = await self._spawn(spec, group, opened)
            async with asyncio.timeout(self._timeout):
                pid = await self._first_process(spec, info)
                identity = procfs.identity(pid) or ""
                # Before it has any command: root inside can raise the score of the agent.
                known = msgspec.structs.replace(
                    record, pid=pid, identity=identity, score=score(pid)
                )
                await run_to_end(self._records.write, spec.host_ref, known)
                told = await handover.tell(config, handover.agent_config(spec, group))
        if not told or not identity or procfs.identity(pid) != identity:
            raise self._unavailable(spec, self.log_tail(spec.host_ref))
        self._watch(spec.host_ref)
        return Container(host_ref=spec.host_ref, pid=pid)

    def _prepare(self, spec: ContainerSpec, record: Record) -> None:
        self._records.write(spec.host_ref, record)
        if self._groups:
            self._groups.make(spec)
        spec.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_events(handover.events(spec.run_dir))
        agent_bundle.use(self.agent.path, spec.host_ref, spec.run_dir)
        for target, content in bundle.identity_files(spec).items():
            bundle.identity_source(spec, target).write_text(content)

    async def _spawn(
        self, spec: ContainerSpec, group: str, opened: ExitStack
    ) -> tuple[socket.socket, socket.socket]:
        """Start the launcher; return our ends of the agent's configuration and bubblewrap's news."""
        config, info = (opened.enter_context(handover.pair()) for _ in range(2))
        with unix.listen(spec.run_dir / "agent.sock") as listener, ExitStack() as inherited:
            listener.setblocking(True)
            passed = [
                listener.fileno(),
                config[1].fileno(),
                handover.in_memory("filter", self._filter, inherited),
                info[1].fileno(),
                handover.in_memory("plan", json.dumps(self._plan(spec, group)).encode(), inherited),
                *(
                    handover.opened_as(path, flags, inherited)
                    for path, flags in handover.counters(spec, group)
                ),
            ]
            argv: list[str | Path] = [
                "/usr/bin/setsid", "-f", sys.executable, "-I", "-S", "-c", _LAUNCH,
                Path(atoll.__file__).parent.parent,
            ]  # fmt: skip
            await process.run_handing_over(
                argv, passed, output=self._log(spec.host_ref), timeout=self._timeout
            )
        for pair in (config, info):
            pair[1].close()
        return config[0], info[0]

    def _plan(self, spec: ContainerSpec, group: str) -> dict[str, object]:
        """Return what the launcher does; see there."""
        root = overlay.read(spec.rootfs)
        volumes = tuple(
            Mount(source=Path(one.source), target=one.target, read_only=one.read_only)
            for one in root.attached
        )
        spec = msgspec.structs.replace(spec, mounts=spec.mounts + volumes)
        return {
            "lowers": root.lowers,
            "upper": root.upper,
            "work": root.work,
            "root": str(spec.rootfs),
            "netns": str(spec.netns) if spec.netns else None,
            "group": f"{group}/agent/cgroup.procs" if group else None,
            "attached": [volume.target for volume in volumes],
            "targets": command.targets(spec),
            "argv": command.argv(spec, self._host),
        }

    async def _first_process(self, spec: ContainerSpec, info: socket.socket) -> int:
        """Return the process id of pid 1 as soon as bubblewrap has made it."""
        loop, told = asyncio.get_running_loop(), b""
        while chunk := await loop.sock_recv(info, 1 << 12):
            told += chunk
            with suppress(ValueError):  # not all of it yet
                return handover.first_process(json.loads(told))
        raise self._unavailable(spec, self.log_tail(spec.host_ref))

    def _unavailable(self, spec: ContainerSpec, reason: str) -> ContainerUnavailableError:
        return ContainerUnavailableError(
            f"bubblewrap could not start the sandbox: {without(reason, self._private(spec))}",
            context={"reason": "runtime", "runtime": self.name},
            suggestion="`atoll doctor` tells what this host lets a user do",
        )

    def _private(self, spec: ContainerSpec) -> dict[str, str]:
        """Paths of the host that no caller is told → what stands for them."""
        sources = {str(mount.source): f"source of {mount.target}" for mount in spec.mounts}
        return sources | {
            str(spec.rootfs): "",
            str(spec.run_dir): "(run)",
            str(self.agent.path): bundle.AGENT_DIR,
            str(self._state_dir): "(state)",
        }

    def _log(self, host_ref: str) -> int:
        """Return what takes the agent's stdout and stderr, and never more than `LOG_SIZE` of it."""
        self._drop_log(host_ref)
        log = os.memfd_create("atoll-agent-log", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(log, LOG_SIZE)
        fcntl.fcntl(log, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
        self._logs[host_ref] = log
        return log

    def _drop_log(self, host_ref: str) -> None:
        if (log := self._logs.pop(host_ref, None)) is not None:
            os.close(log)

    def log_tail(self, host_ref: str) -> str:
        """Return the end of what the agent printed; empty when this engine did not start it."""
        if (log := self._logs.get(host_ref)) is None:
            return ""
        text = os.pread(log, LOG_SIZE, 0).rstrip(b"\0")
        return text[-LOG_TAIL:].decode(errors="replace").strip()

    async def dial(self, run_dir: Path, host_ref: str) -> socket.socket:
        """See `Runtime.dial`."""
        try:
            return unix.connect(run_dir / "agent.sock")
        except FileNotFoundError as error:
            raise ConnectionRefusedError(f"{host_ref} has no socket") from error

    async def find(self, host_ref: str) -> Container | None:
        """See `Runtime.find`."""
        record = self._records.read(host_ref)
        if record is None or not record.pid or procfs.identity(record.pid) != record.identity:
            return None
        return Container(host_ref=host_ref, pid=record.pid)

    async def list(self) -> list[str]:
        """See `Runtime.list`."""
        return self._records.list()

    async def remove(self, host_ref: str) -> None:
        """See `Runtime.remove`."""
        await run_to_end(self._remove, host_ref)

    def _remove(self, host_ref: str) -> None:
        self._drop_log(host_ref)
        self.watch.drop(host_ref)
        if (record := self._records.read(host_ref)) is None:
            return
        if record.pid:
            tree.kill(record.pid, record.identity)
        elif not record.group:
            _wait_for_nobody(Path(record.run_dir))
        if record.group:
            groups.remove(record.group)
        shutil.rmtree(record.run_dir, ignore_errors=True)
        if record.agent_dir:
            agent_bundle.release(Path(record.agent_dir), host_ref)
        self._records.drop(host_ref)

    async def pause(self, host_ref: str) -> None:
        """See `Runtime.pause`: by the control group, else every process is stopped by a signal.

        What was stopped before stays so when the others go on, also after an engine's restart.
        """
        record = self._records.read(host_ref)
        if record is None or not await self.find(host_ref):
            return
        if record.group:
            await run_to_end(cgroup.freeze, groups.of(record.group))
        elif record.stopped is None:
            stopped = await run_to_end(tree.stop, record.pid)
            self._records.write(host_ref, msgspec.structs.replace(record, stopped=tuple(stopped)))

    async def resume(self, host_ref: str) -> None:
        """See `Runtime.resume`."""
        record = self._records.read(host_ref)
        if record is None or not await self.find(host_ref):
            return
        if record.group:
            await run_to_end(groups.of(record.group).set_frozen, False)
        else:
            await run_to_end(tree.go_on, record.pid, record.stopped or ())
            self._records.write(host_ref, msgspec.structs.replace(record, stopped=None))

    async def rename(self, host_ref: str, hostname: str) -> None:
        """See `Runtime.rename`."""
        if (record := self._records.read(host_ref)) and (found := await self.find(host_ref)):
            # In place: the file is bound into the sandbox, a new one would not be.
            await run_to_end(Path(record.run_dir, "hostname").write_text, hostname + "\n")
            names = [f"--{kind}=/proc/{found.pid}/ns/{kind}" for kind in ("user", "uts")]
            set_name = "import socket, sys; socket.sethostname(sys.argv[1])"
            argv = ["nsenter", *names, "--preserve-credentials", "--", sys.executable, "-I", "-S"]
            await process.run([*argv, "-c", set_name, hostname], timeout=self._timeout)

    async def usage(self, host_ref: str) -> Usage:
        """See `Runtime.usage`."""
        record = self._records.read(host_ref)
        if record is None or not (found := await self.find(host_ref)):
            return Usage(memory=0, cpu_time=0.0, pids=0, oom_kills=0)
        if {"memory", "pids"} <= set(groups.held(record.group)):
            return await run_to_end(groups.of(record.group).usage)
        return await run_to_end(tree.usage, found.pid, kills(handover.events(record.run_dir)))


def _wait_for_nobody(run_dir: Path) -> None:
    """Wait until no process has the socket that a sandbox inherits: its start has ended then."""
    for _ in tree.until(ORPHAN_TIMEOUT):
        try:
            unix.connect(run_dir / "agent.sock").close()
        except OSError:
            return
