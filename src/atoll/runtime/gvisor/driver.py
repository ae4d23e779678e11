"""The `gvisor` level: each sandbox is a runsc. I/O only; decisions are its siblings'.

An OCI runtime like the others, so records, cgroups and removal are `OciRuntime`'s. It differs in
how its agent is reached: the loopback inside is gVisor's own, no socket can be handed in, and none
can be made there from outside. The agent listens on the sandbox's address; who connects has to know
the token of this start.

runsc makes no cgroups here. All of a sandbox, gVisor's processes with it, is in the group that the
instance's limits are on, with some room for what runs besides the commands.
"""

import asyncio
import os
import secrets
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

from atoll.errors import ContainerUnavailableError
from atoll.host import linux, privacy, tcp
from atoll.host.mounts import mounts_below, read_mounts
from atoll.host.threads import run_to_end
from atoll.runtime.base import ADDRESS_FILE, TOKEN_FILE, Container, ContainerSpec
from atoll.runtime.gvisor import config, program
from atoll.runtime.oci import agent_bundle, cgroup, cli
from atoll.runtime.oci.cgroup_files import Limits
from atoll.runtime.oci.driver import OciRuntime
from atoll.settings import RuntimeSettings, StorageSettings
from atoll.wire.agent import AGENT_PORT

_THREADS: Final = 2
"""Threads of the host for each that may be inside: 50 commands at once took 1,400 (measured)."""

_LOOK: Final = 0.5
"""Seconds between two looks at whether the kernel has killed a part of a sandbox."""

_POLL: Final = 0.01


class Choice(cli.Choice, frozen=True, kw_only=True):
    """The runsc in use, and how it intercepts system calls."""

    platform: str


class GvisorRuntime(OciRuntime):
    """Drives runsc. Make it with `open`."""

    level = "gvisor"
    folder = "gvisor"
    by_namespace = False
    takes_files = False
    own_ids = False
    choice: Choice

    @classmethod
    async def open(
        cls, settings: RuntimeSettings, storage: StorageSettings, engine_id: str
    ) -> Self:
        """Find out how runsc works here, and return the driver; see `OciRuntime.open`."""
        agent = await agent_bundle.build(storage.cache_dir)
        found = await program.choose(storage.cache_dir, agent)
        choice = Choice(
            name=program.PROGRAM, path=Path(found.path), reason=found.reason, platform=found.name
        )
        return await cls._opened(choice, agent, settings, storage, engine_id)

    async def prepare(self, host_ref: str, id_base: int, id_count: int) -> None:
        """See `Runtime.prepare`; there is nothing to do."""

    async def _start(self, spec: ContainerSpec) -> Container:
        container = await super()._start(spec)
        async with asyncio.timeout(self._timeout):
            await self._answers(spec)
        return container

    async def _answers(self, spec: ContainerSpec) -> None:
        """Wait until the agent listens: no socket was there before it."""
        while True:
            try:
                (await self.dial(spec.run_dir, spec.host_ref)).close()
                return
            except ConnectionError:
                if await self.find(spec.host_ref) is None:
                    raise self._ended(spec) from None
            await asyncio.sleep(_POLL)

    def _ended(self, spec: ContainerSpec) -> ContainerUnavailableError:
        return ContainerUnavailableError(
            f"{self.name} started the sandbox and it ended: {self.log_tail(spec.host_ref)}",
            context={"reason": "runtime", "runtime": self.name},
            suggestion="`atoll doctor` tells what works on this host",
        )

    # The arguments that are not used here are those of `OciRuntime`.

    def _config(self, spec: ContainerSpec, opened: ExitStack) -> dict[str, Any]:  # noqa: ARG002
        _keep_tmp(spec.rootfs)
        return config.config(spec, self._host)

    def _limits(self, spec: ContainerSpec) -> Limits:
        """The agent has no group of its own here: what it has at level container is added.

        60 MB of it are gVisor's, 40 the agent's (measured); how many commands the rest is for: `config.at_once`.
        """
        agent = self._host.agent
        return Limits(
            memory=spec.memory + agent.memory,
            cpu=spec.cpu,
            pids=_THREADS * (spec.pids + agent.pids),
        )

    def _descriptors(self, spec: ContainerSpec, opened: ExitStack) -> list[int]:
        """Return what becomes the agent's standard input."""
        token = secrets.token_urlsafe(32)
        for name, content in ((TOKEN_FILE, token), (ADDRESS_FILE, spec.address)):
            path = spec.run_dir / name
            path.touch(mode=0o600)
            path.write_text(content)
        told = privacy.memory_file("atoll-config")
        opened.callback(os.close, told)
        os.pwrite(told, config.agent_config(spec, token, self._limits(spec)), 0)
        return [told]

    def _argv(self, spec: ContainerSpec, fds: int) -> list[str]:  # noqa: ARG002
        return config.run_argv(
            self.choice.path,
            self.choice.platform,
            groups=self._cgroup(spec.host_ref).join_files(),
            options={
                "root": self._root / spec.host_ref,  # its files there have many names
                "log": spec.run_dir / "runtime.log",
                "log-format": "json",
                "network": "sandbox",
                "file-access": _access(spec.rootfs),
            },
            bundle_dir=spec.run_dir,
            pid_file=spec.run_dir / "pid",
            name=spec.host_ref,
        )

    async def dial(self, run_dir: Path, host_ref: str) -> socket.socket:
        """See `Runtime.dial`."""
        try:
            address = await asyncio.to_thread((run_dir / ADDRESS_FILE).read_text)
        except FileNotFoundError as error:
            raise ConnectionRefusedError(f"{host_ref} has no address") from error
        return await tcp.connect(address, AGENT_PORT)

    async def ended(self, host_ref: str) -> None:
        """Wait until the sandbox has ended; end it when it is out of memory.

        What the kernel kills then is a process that runs the sandbox's code, while the memory is
        runsc's: nothing is freed, and the rest hung for a minute (measured).
        """
        group = self._cgroup(host_ref)
        killed = group.usage().oom_kills
        while await self.find(host_ref):
            if group.usage().oom_kills > killed:
                await run_to_end(cgroup.kill, group)
                return
            await asyncio.sleep(_LOOK)

    async def rename(self, host_ref: str, hostname: str) -> None:
        """See `Runtime.rename`: the file; the name in gVisor's kernel is changed by the agent."""
        if record := self._record(host_ref):
            file = Path(record.run_dir, "hostname")
            # In place: the file is bound into the sandbox, a new one would not be.
            await run_to_end(file.write_text, hostname + "\n")


def _access(rootfs: Path) -> str:
    """Return whether gVisor may take what it knows of files for true.

    Not where a volume is mounted: others change it. Asking each time is slower: a program that looks
    at 4,700 files took 1.5 s instead of 1.0 (measured).
    """
    return "shared" if mounts_below(rootfs, read_mounts()) else "exclusive"


def _keep_tmp(rootfs: Path) -> None:
    """Leave a folder in an empty /tmp: runsc would mount a memory file system on it."""
    with ExitStack() as opened:
        top = os.open(rootfs, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        opened.callback(os.close, top)
        with suppress(OSError):  # there is none: runsc makes it
            folder = linux.open_in_root(top, "tmp")
            opened.callback(os.close, folder)
            os.mkdir(".atoll", 0o700, dir_fd=folder)
