"""Attaches a detached mount in the mount namespace of a sandbox, or takes one away there.

Run as a process of its own (``python -m atoll.host.graft``): a mount can be attached only by who is
in the namespace, and nothing of the engine must ever be loaded from files that are seen there. All
modules are imported before it enters; inside it makes two system calls and ends. Names are
resolved by the engine before, from outside: it hands over descriptors.
"""

import os
import sys

from atoll.host import linux

FAILED = 1
"""Exit code; what failed is a line on stderr: errno, then a text."""


def attach(mount: int, target: int, namespace: int) -> None:
    """Attach *mount* at the folder *target*, once whoever serves it answers for its root."""
    os.fstat(mount)
    _enter(namespace)
    linux.move_mount(mount, "", dir_fd=target)


def detach(parent: int, name: str, namespace: int, flags: int) -> None:
    """Unmount *name* in the folder *parent*; with MNT_DETACH also when it is in use."""
    _enter(namespace)
    os.fchdir(parent)
    linux.umount(name, flags)


def _enter(namespace: int) -> None:
    linux.unshare(linux.CLONE_FS)
    linux.setns(namespace, linux.CLONE_NEWNS)


def main(arguments: list[str]) -> int:
    """Do what the arguments say; descriptors are passed by number."""
    verb, *rest = arguments
    try:
        if verb == "attach":
            attach(*map(int, rest))
        else:
            parent, name, namespace, flags = rest
            detach(int(parent), name, int(namespace), int(flags))
    except OSError as error:
        os.write(2, f"{error.errno} {error.strerror}".encode())
        return FAILED
    return 0


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
