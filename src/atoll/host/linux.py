"""System calls the standard library lacks. The only module of the engine with ctypes.

Every function is one call (or one short, inseparable sequence), raises `OSError` with the path it
was about, and says which kernel it needs; nothing here decides anything. Descriptors returned are
close-on-exec and belong to the caller. Numbers from 424 on are the same on every architecture.
"""

import ctypes
import errno
import fcntl
import os
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath

_libc = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD = -100

_SYS_OPEN_TREE = 428
_SYS_MOVE_MOUNT = 429
_SYS_FSOPEN = 430
_SYS_FSCONFIG = 431
_SYS_FSMOUNT = 432
_SYS_OPENAT2 = 437
_SYS_PIDFD_GETFD = 438
_SYS_MOUNT_SETATTR = 442

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_NOATIME = 1024
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MS_SLAVE = 1 << 19

MNT_DETACH = 2
UMOUNT_NOFOLLOW = 8

AT_RECURSIVE = 0x8000
AT_EMPTY_PATH = 0x1000
OPEN_TREE_CLONE = 1
_OPEN_TREE_CLOEXEC = os.O_CLOEXEC
_MOVE_MOUNT_F_EMPTY_PATH = 0x04
_MOVE_MOUNT_T_EMPTY_PATH = 0x40

MOUNT_ATTR_RDONLY = 0x1
MOUNT_ATTR_NOSUID = 0x2
MOUNT_ATTR_NODEV = 0x4
MOUNT_ATTR_NOEXEC = 0x8
MOUNT_ATTR_NOATIME = 0x10
MOUNT_ATTR_IDMAP = 0x100000

_FSCONFIG_SET_FLAG = 0
_FSCONFIG_SET_STRING = 1
_FSCONFIG_CMD_CREATE = 6
_FSOPEN_CLOEXEC = 1
_FSMOUNT_CLOEXEC = 1

CLONE_FS = 0x200
CLONE_NEWNS = 0x20000
CLONE_NEWUTS = 0x4000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

_CAPABILITY_VERSION_3 = 0x20080522
CAP_SYS_RESOURCE = 24

_WAIT_ANY_CLONE = 0x40000000

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38


def _check(result: int, about: str | Path = "") -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(about))
    return result


def _syscall(number: int, *args: object, about: str | Path = "") -> int:
    """Make a system call; integers go as longs, so that none is passed with stray upper bits."""
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    _libc.syscall.restype = ctypes.c_long
    return _check(_libc.syscall(ctypes.c_long(number), *words), about)


def mount(
    source: str | Path, target: str | Path, fstype: str = "", flags: int = 0, data: str = ""
) -> None:
    """Mount the classic way: any kernel. *data* is limited to 4095 bytes."""
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        fstype.encode() or None,
        ctypes.c_ulong(flags),
        os.fsencode(data) or None,
    )
    _check(result, target)


def umount(target: str | Path, flags: int = 0) -> None:
    """Unmount the top mount at *target* without following a final link: umount2(2), any kernel."""
    _check(_libc.umount2(os.fsencode(target), flags | UMOUNT_NOFOLLOW), target)


def open_tree(path: str | Path, flags: int = OPEN_TREE_CLONE, *, dir_fd: int = _AT_FDCWD) -> int:
    """Return a descriptor of the mount at *path*, by default of a detached copy: kernel 5.2."""
    return _syscall(
        _SYS_OPEN_TREE, dir_fd, os.fsencode(path), flags | _OPEN_TREE_CLOEXEC, about=path
    )


def move_mount(mount_fd: int, target: str | Path, *, dir_fd: int = _AT_FDCWD) -> None:
    """Attach a detached mount at *target*, or with an empty one at *dir_fd* itself: kernel 5.2."""
    encoded = os.fsencode(target)
    flags = _MOVE_MOUNT_F_EMPTY_PATH | (0 if encoded else _MOVE_MOUNT_T_EMPTY_PATH)
    _syscall(_SYS_MOVE_MOUNT, mount_fd, b"", dir_fd, encoded, flags, about=target)


def mount_setattr(
    mount_fd: int,
    *,
    attr_set: int = 0,
    attr_clr: int = 0,
    propagation: int = 0,
    userns_fd: int = 0,
    recursive: bool = False,
) -> None:
    """Change attributes of a mount: kernel 5.12; with ``MOUNT_ATTR_IDMAP`` only while detached.

    Idmapped mounts depend on the file system too: ext4 5.12, xfs 5.12, btrfs 5.15, overlay as the
    user of idmapped layers 5.19, tmpfs 6.3.
    """
    attributes = struct.pack("=4Q", attr_set, attr_clr, propagation, userns_fd)
    flags = AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    _syscall(
        _SYS_MOUNT_SETATTR, mount_fd, b"", flags, attributes, len(attributes), about="mount_setattr"
    )


def fsopen(fstype: str) -> int:
    """Return a context in which a file system is configured: kernel 5.2."""
    return _syscall(_SYS_FSOPEN, fstype.encode(), _FSOPEN_CLOEXEC, about=fstype)


def fsconfig(context_fd: int, key: str, value: str | Path | None = None) -> None:
    """Set a flag, or a string of at most 255 bytes, in a file system context: kernel 5.2."""
    if value is None:
        args: tuple[object, ...] = (_FSCONFIG_SET_FLAG, key.encode(), None, 0)
    else:
        args = (_FSCONFIG_SET_STRING, key.encode(), os.fsencode(value), 0)
    _syscall(_SYS_FSCONFIG, context_fd, *args, about=f"{key}={value}")


def fsmount(context_fd: int, attributes: int = 0) -> int:
    """Create the configured file system and return it as a detached mount: kernel 5.2."""
    _syscall(_SYS_FSCONFIG, context_fd, _FSCONFIG_CMD_CREATE, None, None, 0, about="fsconfig")
    return _syscall(_SYS_FSMOUNT, context_fd, _FSMOUNT_CLOEXEC, attributes, about="fsmount")


def setns(fd: int, kind: int = 0) -> None:
    """Move the calling thread into a namespace: kernel 3.0.

    *kind* (``CLONE_NEW*``) guards against a descriptor of another kind. A thread may enter a
    mount namespace only after ``unshare(CLONE_FS)``.
    """
    _check(_libc.setns(fd, kind), "setns")


def owner_of_namespace(fd: int) -> int:
    """Return a descriptor of the user namespace that owns the one of *fd*: kernel 4.9."""
    return fcntl.ioctl(fd, 0xB701)  # NS_GET_USERNS


def unshare(flags: int) -> None:
    """Give the calling thread namespaces (or, with CLONE_FS, a working directory) of its own."""
    _check(_libc.unshare(flags), "unshare")


def user_namespace(uid_map: str, gid_map: str, *, owner: int | None = None) -> int:
    """Return a descriptor of a new user namespace with these maps: kernel 3.8.

    The namespace needs a process while it is made. That child runs libc's ``sleep`` on a stack of
    its own and no Python, so it is safe in a process with threads, and it ends by itself within
    10 s if the caller is killed meanwhile. It sends no SIGCHLD, so nobody else reaps it. 0.8 ms,
    and 3 ms more for each 100 MB of the caller's memory.

    *owner* is the user id, here, whose limits the namespace counts against; None is the caller's.
    """
    stack = ctypes.create_string_buffer(64 << 10)
    top = (ctypes.addressof(stack) + len(stack)) & ~0xF
    with _effective_user(owner):
        child = _libc.clone(_libc.sleep, ctypes.c_void_p(top), CLONE_NEWUSER, ctypes.c_void_p(10))
        pid = _check(child, "clone(CLONE_NEWUSER)")
    try:
        Path(f"/proc/{pid}/uid_map").write_text(uid_map)
        Path(f"/proc/{pid}/gid_map").write_text(gid_map)
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, _WAIT_ANY_CLONE)


@contextmanager
def _effective_user(uid: int | None) -> Iterator[None]:
    """Act as *uid*, with unchanged capabilities, in the calling thread only.

    The bare system call changes one thread, libc's function all of them.
    """
    if uid is None:
        yield
        return
    before, bits = os.geteuid(), _check(_libc.prctl(_PR_GET_SECUREBITS), "prctl")
    _check(_libc.prctl(_PR_SET_SECUREBITS, bits | _SECBIT_NO_SETUID_FIXUP), "prctl")
    try:
        _syscall(_SETRESUID[os.uname().machine], -1, uid, -1)
        try:
            yield
        finally:
            _syscall(_SETRESUID[os.uname().machine], -1, before, -1)
    finally:
        _check(_libc.prctl(_PR_SET_SECUREBITS, bits), "prctl")


_PR_GET_SECUREBITS, _PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP = 27, 28, 4
_SETRESUID = {"x86_64": 117, "aarch64": 147}


def open_in_root(root: int, path: str | PurePath, *, links: bool = True) -> int:
    """Return an O_PATH descriptor of *path* as a process sees it whose root is *root*: kernel 5.6.

    Links are followed within that root; those of /proc that leave it are not. Without *links* any
    link on the way is ELOOP.
    """
    resolve = _RESOLVE_IN_ROOT | _NO_MAGICLINKS | (0 if links else _NO_SYMLINKS)
    how = struct.pack("QQQ", os.O_PATH | os.O_CLOEXEC, 0, resolve)
    name = ctypes.c_char_p(os.fsencode(path))
    return _syscall(_SYS_OPENAT2, root, name, how, len(how), about=str(path))


def open_below(folder: int, path: str | PurePath, flags: int) -> int:
    """Return a descriptor of *path* below *folder*, by way of no link and no mount: kernel 5.6.

    A link anywhere in the path is ELOOP, another mount EXDEV.
    """
    resolve = _RESOLVE_BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS | _NO_XDEV
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, resolve)
    name = ctypes.c_char_p(os.fsencode(path))
    return _syscall(_SYS_OPENAT2, folder, name, how, len(how), about=str(path))


_RESOLVE_IN_ROOT, _RESOLVE_BENEATH = 0x10, 0x08
_NO_SYMLINKS, _NO_MAGICLINKS, _NO_XDEV = 0x04, 0x02, 0x01


@contextmanager
def files_owned_by(uid: int, gid: int) -> Iterator[None]:
    """Have what the calling thread makes belong to these ids of the host; its rights stay.

    On an idmapped mount nobody can make a file whose ids the mount does not map.
    """
    bits = _check(_libc.prctl(_PR_GET_SECUREBITS), "prctl")
    _check(_libc.prctl(_PR_SET_SECUREBITS, bits | _SECBIT_NO_SETUID_FIXUP), "prctl")
    before = _libc.setfsuid(uid), _libc.setfsgid(gid)
    try:
        yield
    finally:
        _libc.setfsuid(before[0])
        _libc.setfsgid(before[1])
        _check(_libc.prctl(_PR_SET_SECUREBITS, bits), "prctl")


def rename(folder: int, name: str, new_folder: int, new_name: str, *, replace: bool) -> None:
    """Rename below two folders; unless *replace*, a name that is taken is EEXIST: kernel 3.15."""
    names = os.fsencode(name), os.fsencode(new_name)
    flags = ctypes.c_uint(0 if replace else _RENAME_NOREPLACE)
    _check(_libc.renameat2(folder, names[0], new_folder, names[1], flags), new_name)


_RENAME_NOREPLACE = 1


def punch_hole(fd: int, offset: int, length: int) -> None:
    """Give back the space of a part of a file, which reads as zeros afterwards: kernel 2.6.38."""
    keep_size_and_punch = 0x01 | 0x02
    area = ctypes.c_int64(offset), ctypes.c_int64(length)
    _check(_libc.fallocate(fd, keep_size_and_punch, *area), "fallocate")


def fstrim(fd: int) -> int:
    """Give unused blocks of the file system that holds *fd* back to its device: kernel 2.6.37.

    Returns the bytes it told the device of, which may have been unused there already.
    """
    whole = bytearray(struct.pack("=3Q", 0, (1 << 64) - 1, 0))
    fcntl.ioctl(fd, _FITRIM, whole)
    return int(struct.unpack("=3Q", whole)[1])


_FITRIM = 3 << 30 | 24 << 16 | ord("X") << 8 | 121


def syncfs(fd: int) -> None:
    """Write what is cached of the file system that holds *fd*."""
    _check(_libc.syncfs(fd))


def pidfd_getfd(pidfd: int, fd: int) -> int:
    """Return a copy of descriptor *fd* of another process: kernel 5.6."""
    return _syscall(_SYS_PIDFD_GETFD, pidfd, fd, 0, about="pidfd_getfd")


def set_child_subreaper() -> None:
    """Make orphans among the descendants children of this process: kernel 3.4."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "PR_SET_CHILD_SUBREAPER")


def set_parent_death_signal(number: int) -> None:
    """Have this process sent signal *number* when the thread that made it ends: any kernel."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0), "PR_SET_PDEATHSIG")


def set_no_new_privileges() -> None:
    """Have no program that this process executes give it rights: kernel 3.5. For good."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")


def install_filter(program: bytes) -> None:
    """Have a seccomp filter decide about system calls of the calling thread: kernel 3.5. For good.

    Threads and processes that it makes have it too. It must not be able to gain privileges.

    Args:
        program: an array of struct sock_filter.
    """
    steps = ctypes.create_string_buffer(program, len(program))
    told = struct.pack("@HP", len(program) // 8, ctypes.addressof(steps))
    result = _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, told, 0, 0)
    _check(result, "PR_SET_SECCOMP")


def drop_bounding_set() -> None:
    """Take every capability out of the calling thread's bounding set: kernel 2.6.25. For good."""
    capability = 0
    while _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1
    if ctypes.get_errno() != errno.EINVAL:  # the first number that is no capability
        _check(-1, "PR_CAPBSET_DROP")


def enter_root(path: Path) -> None:
    """Make the mount at *path* the root of this mount namespace and let go of the old one.

    Unlike after chroot, nothing of the old root can be reached or is kept mounted.
    """
    os.chdir(path)
    _check(_libc.pivot_root(b".", b"."), path)
    umount(".", MNT_DETACH)
    os.chdir("/")


def capget() -> tuple[int, int, int]:
    """Return the calling thread's effective, permitted and inheritable sets as bit masks."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0))
    data = ctypes.create_string_buffer(24)
    _check(_libc.capget(header, data), "capget")
    low_e, low_p, low_i, high_e, high_p, high_i = struct.unpack("=6I", data.raw[:24])
    return low_e | high_e << 32, low_p | high_p << 32, low_i | high_i << 32


def capset(effective: int, permitted: int, inheritable: int) -> None:
    """Set the calling thread's capability sets from bit masks: any kernel."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0))
    sets = (effective, permitted, inheritable)
    words = [s & 0xFFFFFFFF for s in sets] + [s >> 32 for s in sets]
    _check(_libc.capset(header, struct.pack("=6I", *words)), "capset")


def drop_sys_resource() -> None:
    """Take CAP_SYS_RESOURCE out of the calling thread's effective set.

    File systems check quotas and reserved blocks with the credentials of whoever mounted the
    overlay; with this capability a sandbox would have no disk limit. Capabilities belong to
    threads and are inherited by those started later: call it before any other thread exists.
    """
    effective, permitted, inheritable = capget()
    capset(effective & ~(1 << CAP_SYS_RESOURCE), permitted, inheritable)
