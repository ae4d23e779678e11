"""Control groups of sandboxes, where a user was given a part of the tree (cgroup version 2).

systemd marks such a part: ``systemd-run --user --scope -p Delegate=yes``. The kernel lets no group have
processes and limited groups beside them, so what is in that part already moves into ``engine``, and
each sandbox gets ``sandboxes/<host_ref>`` with the groups ``agent`` and ``user`` of level `container`.
A part may have some controllers only: what they limit is limited, the rest as without groups. Every
group can be frozen and killed, which takes none.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

import structlog

from atoll.runtime.base import ContainerSpec
from atoll.runtime.oci import cgroup
from atoll.runtime.oci import cgroup_files as files
from atoll.runtime.oci.bundle import AgentLimits
from atoll.runtime.oci.cgroup_files import LIMITING, Limits
from atoll.runtime.oci.cgroup_v2 import CgroupV2

MARK: Final = "user.delegate"
"""Extended attribute "1" of a group that systemd (252 and later) leaves to its user to divide."""

ENGINE: Final = "engine"
_SANDBOXES: Final = "sandboxes"

_log = structlog.get_logger(__name__)


class Part(NamedTuple):
    """Of the tree, ours to divide: its top, and which limits it can set."""

    top: Path
    controllers: tuple[str, ...]


def own(told: str | None = None, mount: Path | None = None) -> Part | None:
    """Return the part that this process was given; None: none. Changes nothing.

    Args:
        told: its /proc/<pid>/cgroup; None: of this process.
        mount: where version 2 is mounted; None: where it is on this host.
    """
    told = Path("/proc/self/cgroup").read_text() if told is None else told
    mount = mount or cgroup.mounted().v2
    path = unified(told)
    if mount is None or path is None:
        return None
    group = mount / path
    for top in (group, group.parent) if group.name == ENGINE else (group,):
        if _given(top):
            has = files.read(top / "cgroup.controllers").split()
            return Part(top, tuple(name for name in LIMITING if name in has))
    return None


def unified(told: str) -> PurePosixPath | None:
    """Return the group of version 2 in a /proc/<pid>/cgroup, below its mount; None: not seen."""
    line = next((line[3:] for line in told.splitlines() if line.startswith("0::/")), None)
    if line is None or ".." in PurePosixPath(line).parts:  # of another namespace
        return None
    return PurePosixPath(line.lstrip("/"))


def _given(top: Path) -> bool:
    try:
        if os.getxattr(top, MARK) != b"1":
            return False
    except OSError:  # no such mark, or no such group
        return False
    files_of_it = (top, top / "cgroup.procs", top / "cgroup.subtree_control")
    return all(os.access(path, os.W_OK) for path in files_of_it)


class Groups:
    """Makes those of sandboxes.

    Args:
        part: where; it has been taken.
        agent: limits of each agent's own group.
    """

    def __init__(self, part: Part, agent: AgentLimits) -> None:
        self.part, self._agent = part, agent

    @classmethod
    def take(cls, part: Part | None, agent: AgentLimits) -> "Groups | None":
        """Make *part* ready; None: there is none, or the kernel does not let us. Blocking."""
        if part is None:
            return None
        try:
            _make_room(part)
        except OSError as error:
            _log.warning("sandboxes get no control groups", group=str(part.top), error=str(error))
            return None
        return cls(part, agent)

    def make(self, spec: ContainerSpec) -> Path:
        """Make the groups of a sandbox; return the one that holds both. Blocking."""
        group = self.path(spec.host_ref)
        wanted = Limits(memory=spec.memory, cpu=spec.cpu, pids=spec.pids)
        CgroupV2(self.part.top, _below(group), self.part.controllers).make(wanted)
        files.make(group / "agent")
        for name in {"memory", "pids"} & set(self.part.controllers):
            files.write(group / "agent" / f"{name}.max", getattr(self._agent, name))
        return group

    def path(self, host_ref: str) -> Path:
        """Return where the groups of a sandbox are, or will be."""
        return self.part.top / _SANDBOXES / host_ref


def _make_room(part: Part) -> None:
    leaf = part.top / ENGINE
    files.make(leaf)
    for pid in files.read(part.top / "cgroup.procs").split():
        with suppress(ProcessLookupError):
            files.write(leaf / "cgroup.procs", pid)
    if part.controllers:
        wanted = " ".join(f"+{name}" for name in part.controllers)
        files.write(part.top / "cgroup.subtree_control", wanted)


def of(group: str | Path) -> CgroupV2:
    """Return the groups that `Groups.make` made at *group*, whichever engine it was."""
    group = Path(group)
    return CgroupV2(group.parent.parent, _below(group), held(group))


def held(group: str | Path) -> tuple[str, ...]:
    """Return which limits the kernel holds the commands of a sandbox to: of memory, pids, cpu."""
    if not group:
        return ()
    has = files.read(Path(group) / "user" / "cgroup.controllers").split()
    return tuple(name for name in LIMITING if name in has)


def remove(group: str | Path) -> None:
    """Kill what is in a sandbox's groups and remove them. Idempotent. Blocking.

    Raises:
        ContainerUnavailableError: a process does not end (it hangs in the kernel).
    """
    found = of(group)
    cgroup.kill(found)
    found.remove()


def unlimited(controllers: Iterable[str]) -> tuple[str, ...]:
    """Return which of the limits that are told hold for no sandbox as a whole.

    Without control groups memory is measured and processes are counted in the user namespace.
    """
    return ("disk",) if "cpu" in controllers else ("cpu", "disk")


def _below(group: Path) -> PurePosixPath:
    return PurePosixPath(_SANDBOXES, group.name)
