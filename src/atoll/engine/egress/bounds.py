"""What the gateway may take of the host: a control group of its own, beside those of sandboxes.

It serves all sandboxes, and one of them may find what makes it large. Then the kernel ends it, and not
something else of the host; the keeper starts another one.
"""

import os
import resource
from contextlib import suppress

import structlog

from atoll.errors import SandboxError
from atoll.runtime.oci import cgroup
from atoll.runtime.oci.cgroup_files import Limits

NAME = "egress"
"""Of the group: no container is called so."""

MAX_PIDS = 64
"""Threads: name look-ups and log files of libraries have some, the gateway itself one."""

_log = structlog.get_logger(__name__)


class Bounds:
    """The group of one engine's gateway.

    Args:
        engine_id: whose it is.
        memory: bytes.
    """

    def __init__(self, engine_id: str, memory: int) -> None:
        self._limits = Limits(memory, float(os.cpu_count() or 1), MAX_PIDS)
        self._group = cgroup.of(cgroup.mounted(), engine_id, NAME)

    def hold(self, pid: int) -> None:
        """Put a process into the group. Where the host has none it goes without, as is logged."""
        try:
            self._group.make(self._limits)
            for file in self._group.join_files():
                file.with_name("cgroup.procs").write_text(str(pid))
        except (OSError, SandboxError) as error:
            _log.warning("the egress gateway has no bounds", error=str(error))

    def remove(self) -> None:
        """Remove the group, whose process has ended."""
        try:
            self._group.remove()
        except (OSError, SandboxError) as error:
            _log.warning("the group of the egress gateway is left", error=str(error))


class ProcessBounds:
    """What holds the gateway of a user without root, who has no control groups: its private memory.

    Args:
        memory: bytes.
    """

    def __init__(self, memory: int) -> None:
        self._memory = memory

    def hold(self, pid: int) -> None:
        """Limit what a process may map; what it cannot map fails that connection."""
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_DATA, (self._memory, self._memory))

    def remove(self) -> None:
        """Do nothing: the limit ended with the process."""
