"""Takes from the gateway's process what it does not need: files, user, rights. No way back.

It sees one folder, the logs', and a file system in memory; it is a user of its own without any
capability and cannot get one; of the kernel it may ask what moving bytes takes (`seccomp`). What it
imports later it would not find: everything is imported first.

The gateway of a user without root stays that user, in a user namespace that has no other: it cannot
trace the user's processes, whose namespace is another, nor see a file of theirs.
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
        uid: of the host; nobody else's. Also the group. That of the caller, who is not root: it
            stays what it is.

    Raises:
        OSError: the host refused, or it is a machine that there is no filter for.
    """
    try:
        program = seccomp.program(os.uname().machine)
    except KeyError as error:
        raise OSError(f"there is no filter of system calls for {error}") from error
    keys = folder / KEYS
    keys.mkdir(mode=0o700, exist_ok=True)
    root = os.geteuid() == 0
    gid = uid if root else os.getegid()
    os.chown(folder, uid, gid, follow_symlinks=False)
    folder.chmod(0o700)
    if not root:
        _enter_user_namespace(uid, gid)
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    linux.mount(folder, folder, flags=linux.MS_BIND)
    linux.mount("", folder, flags=linux.MS_REMOUNT | linux.MS_BIND | _PLAIN)
    linux.mount("keys", keys, "tmpfs", _PLAIN, f"size=4m,mode=0700,uid={uid},gid={gid}")
    linux.enter_root(folder)
    limit()
    os.umask(0o077)
    linux.drop_bounding_set()
    if root:
        os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    linux.capset(0, 0, 0)
    linux.set_no_new_privileges()
    linux.install_filter(program)


def _enter_user_namespace(uid: int, gid: int) -> None:
    linux.unshare(linux.CLONE_NEWUSER)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        Path("/proc/self", name).write_text(text)


def limit() -> None:
    """Bound what the process may have open and write."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    descriptors = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE, MAX_FILE))
