"""The contract of a runtime driver: few verbs, all idempotent, all safe to repeat after a crash.

A container's name is its `host_ref`, chosen and recorded by the engine before `start`, so that
whatever a crash leaves behind can be found and removed by `list` and `remove`.
"""

import socket
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

TOKEN_FILE = "agent.token"  # noqa: S105  # the name is no secret
"""In a container's run_dir, where `dial` connects by TCP: what every HEADER has to carry. Beside
the container only the engine can read it, and it is found again after a restart."""

ADDRESS_FILE = "address"
"""Beside it, where the driver keeps the sandbox's address: found again after a restart."""


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A host path that is bound into the sandbox."""

    source: Path
    target: str
    read_only: bool = True


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a driver needs to start one container. Paths are on the host."""

    host_ref: str
    generation: int
    identity: str  # the same for all starts of one sandbox, of no other: makes its machine id
    hostname: str
    runtime: str = ""  # what its caller named; a driver may know several names
    image: str = ""  # its reference, for drivers that get it themselves
    first: bool = False  # it never ran: what outlives its containers is empty
    rootfs: Path  # mounted already, with the ids of this sandbox
    run_dir: Path  # 0700, of this container alone: bundle, agent.sock, logs; removed by `remove`
    netns: Path | None  # a named network namespace; None: a fresh one with loopback only
    address: str = ""  # of the sandbox in that network
    id_base: int  # host id of root inside
    id_count: int
    memory: int  # bytes
    cpu: float  # cores
    disk: int = 0  # bytes, for drivers that limit it themselves; 0: no limit
    pids: int
    env: dict[str, str] = {}  # start environment of commands (image, operator, caller)
    workdir: str = "/workspace"
    user: str = "0:0"  # of commands
    mounts: tuple[Mount, ...] = ()
    lease: float = 0.0  # seconds after which its agent ends it unless renewed; 0: never


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """A running container. All of it can be found again from `host_ref` after a restart."""

    host_ref: str
    pid: int  # of its init, in the host's pid namespace; 0: it runs on another host


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a container uses now. Memory in bytes, cpu time in seconds.

    `uncounted` is memory that the kernel keeps for it and that is in no limit.
    """

    memory: int
    cpu_time: float
    pids: int
    oom_kills: int
    uncounted: int = 0


class Runtime(Protocol):
    """A driver. Errors are of the tree in `atoll.errors`; a missing container is never one."""

    name: str  # the program: runc, crun, runsc, bwrap
    level: str  # container, gvisor, bwrap
    by_namespace: bool  # sockets can be made in the namespaces of `Container.pid`; False: nowhere
    takes_files: bool  # `dial` connects by unix socket, so descriptors can be handed to the agent

    own_ids: bool  # sandboxes run with a range of host ids of their own; False: with the image's

    @property
    def unlimited(self) -> tuple[str, ...]:
        """Names of those `Limits` that hold for no sandbox as a whole that is started now."""

    async def prepare(self, host_ref: str, id_base: int, id_count: int) -> None:
        """Make what `start` needs beside the root, which is being mounted meanwhile.

        A start without it makes that itself; `remove` gives it up.
        """

    async def start(self, spec: ContainerSpec) -> Container:
        """Create and start the container; its agent listens when this returns.

        Nothing of it is left behind when it fails.

        Raises:
            ContainerUnavailableError: the runtime refused; `context.reason` is "runtime".
        """

    async def dial(self, run_dir: Path, host_ref: str) -> socket.socket:
        """Return a fresh, non-blocking connection to the container's agent.

        It is a unix socket, or TCP with the start's token in `TOKEN_FILE`.

        Raises:
            ConnectionError: nobody listens there (any more).
        """

    async def find(self, host_ref: str) -> Container | None:
        """Return the container if its init is alive."""

    async def list(self) -> list[str]:
        """Return the host_ref of every container of this engine, running or dead."""

    async def remove(self, host_ref: str) -> None:
        """Kill everything in the container and remove what the driver made for it."""

    async def pause(self, host_ref: str) -> None:
        """Freeze all processes; return when they are frozen.

        Raises:
            TimeoutError: not all of them were frozen within 2 s; they run again.
        """

    async def resume(self, host_ref: str) -> None:
        """Let frozen processes run."""

    async def rename(self, host_ref: str, hostname: str) -> None:
        """Change the host name inside, in the kernel and in /etc/hostname."""

    async def usage(self, host_ref: str) -> Usage:
        """Return what the container uses now."""


@runtime_checkable
class Elsewhere(Protocol):
    """What a driver has besides whose containers end in ways that no process id tells of.

    They run on other hosts, or a part of them may be killed without the rest.
    """

    async def ended(self, host_ref: str) -> None:
        """Wait until the container may have ended; `find` tells whether it has."""


@runtime_checkable
class Remote(Protocol):
    """What a driver has besides whose hosts may be cut off while their containers run."""

    async def end(self, host_ref: str, timeout: float) -> bool:
        """Have the container end; return whether its host said within *timeout* seconds that it has."""

    async def abandon(self, host_ref: str) -> None:
        """Forget a container that is known to have ended though its host does not say so."""
