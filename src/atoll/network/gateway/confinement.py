"""Takes from the gateway's process what it does not need: files, user, rights. No way back.

It sees one folder, the logs', and a file system in memory; it is a user of its own without any
capability and cannot get one; of the kernel it may ask what moving bytes takes (`seccomp`). What it
imports later it would not find: everything is imported first.
"""

import os
import resource
from pathlib import Path

from atoll.host import linux
from atoll.network.gateway import seccomp

MAX_DESCRIPTORS = 65_536
MAX_FILE = 8 << 20
"""Bytes of a file it writes: more than a log has."""

KEYS = "keys"
"""Folder, in memory, of what OpenSSL reads from files only."""

_PLAIN = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC


def confine(folder: Path, uid: int) -> None:
    """Make *folder* all the calling process sees, as "/", and *uid* who it is.

    Args:
        folder: of the logs; it belongs to *uid* afterwards.
        uid: of the host; nobody else's. Also the group.

    Raises:
        OSError: the host refused, or it is a machine that there is no filter for.
    """
    try:
        program = seccomp.program(os.uname().machine)
    except KeyError as error:
        raise OSError(f"there is no filter of system calls for {error}") from error
    keys = folder / KEYS
    keys.mkdir(mode=0o700, exist_ok=True)
    os.chown(folder, uid, uid, follow_symlinks=False)
    folder.chmod(0o700)
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    linux.mount(folder, folder, flags=linux.MS_BIND)
    linux.mount("", folder, flags=linux.MS_REMOUNT | linux.MS_BIND | _PLAIN)
    linux.mount("keys", keys, "tmpfs", _PLAIN, f"size=4m,mode=0700,uid={uid},gid={uid}")
    linux.enter_root(folder)
    limit()
    os.umask(0o077)
    linux.drop_bounding_set()
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    linux.set_no_new_privileges()
    linux.install_filter(program)


def limit() -> None:
    """Bound what the process may have open and write."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    descriptors = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE, MAX_FILE))
