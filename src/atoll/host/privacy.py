"""What a process that holds secrets must not take over, and must not leave open to others."""

import os
import resource

UMASK = 0o022
"""Nobody else writes what the engine makes. Not 0o077: roots of sandboxes are made under it, and
are read there by ids that are nobody here. What holds a secret is made 0600 where it is made."""


def keep() -> None:
    """Write no core dump, and take write permission from others on new files; children inherit both.

    Handlers that get dumps by a pipe are started whatever the limit; systemd's keeps to it.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(UMASK)


def memory_file(name: str) -> int:
    """Return the descriptor of an empty memory file that is for its owner only.

    The kernel makes them for everybody, mode 0777, and gVisor lets each user inside open whatever
    pid 1 was given.
    """
    file = os.memfd_create(name)
    os.fchmod(file, 0o600)
    return file
