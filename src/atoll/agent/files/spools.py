"""New content for a file: written aside, made durable, put in place as a whole.

The content goes to a file without a name (O_TMPFILE) in the target's directory, so that nothing
is left when the writer dies, whatever kills it. It gets a name only when it is complete: the
target's own when there is none yet, else a temporary one that is renamed over the target at once.

Where the directory takes no new file, the owner of an existing one cannot be kept, or the target
is not a regular file or is mounted by itself, the content is spooled elsewhere and then copied
into the file in place. That is the only case in which a crash in the middle of the copy can leave
a mixed file.
"""

import errno
import os
import stat
import time
from contextlib import suppress
from typing import Final, Self

from atoll import errors
from atoll.agent.descriptors import memory_file
from atoll.agent.files.pathnames import Place

TEMPORARY: Final = b".atoll-"
"""Start of the names of our temporary files; watches do not report them."""

TEMPORARY_END: Final = b".tmp"

LOCK_TIMEOUT: Final = 10.0
"""Seconds an append waits for another one on the same file."""

_ELSEWHERE: Final = (b"/tmp", b"/var/tmp")
_COPY_CHUNK: Final = 1 << 20
_NO_RANGE_COPY: Final = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.ETXTBSY}
)
_NO_NEW_FILE: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NO_RENAME: Final = frozenset({errno.EBUSY, errno.EXDEV, errno.EPERM, errno.EACCES})


def temporary_name() -> bytes:
    """Return a name nobody else uses, of a form that `is_temporary` knows."""
    return TEMPORARY + b"%08x" % os.getpid() + os.urandom(4).hex().encode() + TEMPORARY_END


def is_temporary(name: bytes) -> bool:
    """Tell whether *name* is one of ours."""
    return name.startswith(TEMPORARY) and name.endswith(TEMPORARY_END) and len(name) == 27


def is_temporary_of(pid: int, name: bytes) -> bool:
    """Tell whether *name* is one that the process *pid* made."""
    return is_temporary(name) and name.startswith(TEMPORARY + b"%08x" % pid)


class Spool:
    """Content on its way into one place. A context manager: what is not committed is gone.

    Args:
        place: where the content is to go.
        existing: what is there now.
        mode: permission bits of the file; None: those it has, or the usual ones of a new file.
    """

    def __init__(
        self, place: Place, existing: os.stat_result | None, mode: int | None = None
    ) -> None:
        self._place = place
        self._existing = existing
        self._mode = mode
        self._name: bytes | None = None
        self.size = 0
        self._beside = existing is None or stat.S_ISREG(existing.st_mode)
        self.fd = self._open_beside() if self._beside else -1
        if self.fd < 0:
            self._beside = False
            self.fd = _open_elsewhere()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        if self._name is not None:
            with suppress(OSError):
                os.unlink(self._name, dir_fd=self._place.directory)

    def write(self, data: memoryview | bytes) -> None:
        """Add *data*."""
        view = memoryview(data)
        self.size += len(view)
        while view:
            view = view[os.write(self.fd, view) :]

    def replace(self) -> None:
        """Make the content that of the place, durably.

        An existing file's mode, owner and extended attributes are kept.
        """
        if not self._beside:
            self._overwrite()
            return
        if self._existing is not None:
            _copy_attributes(self._place, self.fd)
        wanted = self._wanted_mode()
        if wanted is not None and stat.S_IMODE(os.fstat(self.fd).st_mode) != wanted:
            os.fchmod(self.fd, wanted)
        os.fsync(self.fd)
        try:
            self._publish()
        except OSError as error:
            if self._existing is None or error.errno not in _NO_RENAME:
                raise
            self._overwrite()
            return
        self._place.sync()

    def append(self) -> None:
        """Add the content to the end of the place's file, all of it or nothing.

        One write call does it, which the kernel lets nobody interleave; a lock keeps appends of
        ours over 2 GB, and the undoing of a failed one, apart.

        Raises:
            ResourceBusyError: another append or a foreign lock lasts longer than `LOCK_TIMEOUT`.
        """
        fd = self._place.open(os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            _lock(fd)
            before = os.fstat(fd)
            try:
                self._copy_at_once(fd)
                os.fsync(fd)
            except OSError:
                if stat.S_ISREG(before.st_mode):
                    os.ftruncate(fd, before.st_size)
                raise
            if self._mode is not None:
                os.fchmod(fd, self._mode)
        finally:
            os.close(fd)
        if self._existing is None:
            self._place.sync()

    def _open_beside(self) -> int:
        try:
            fd = self._create()
        except OSError as error:
            if self._existing is None or error.errno not in _NO_NEW_FILE:
                raise
            return -1
        if self._existing is None or _adopt_owner(fd, self._existing):
            return fd
        os.close(fd)
        self._drop_name()
        return -1

    def _wanted_mode(self) -> int | None:
        if self._mode is None and self._existing is not None:
            return stat.S_IMODE(self._existing.st_mode)
        return self._mode

    def _create(self) -> int:
        """Make the file with the final mode: changing a mode sends an event to who watches."""
        directory, mode = self._place.directory, self._wanted_mode()
        mode = 0o666 if mode is None else mode & 0o777
        if os.path.exists(b"/proc/self/fd"):
            flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
            try:
                return os.open(b".", flags, mode, dir_fd=directory)
            except OSError as error:
                if error.errno not in {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT}:
                    raise
        self._name = temporary_name()
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self._name, flags, mode, dir_fd=directory)

    def _publish(self) -> None:
        if self._existing is None and self._appears():
            return
        directory = self._place.directory
        if self._name is None:
            name = temporary_name()
            self._link(name)
            self._name = name
        os.rename(self._name, self._place.name, src_dir_fd=directory, dst_dir_fd=directory)
        self._name = None

    def _appears(self) -> bool:
        """Give a new file its name so that who watches is told of a creation, not of a move."""
        try:
            self._link(self._place.name)
        except OSError as error:
            if self._name is None and not isinstance(error, FileExistsError):
                raise
            return False  # another was quicker, or the file system has no links
        self._drop_name()
        return True

    def _link(self, name: bytes) -> None:
        directory = self._place.directory
        if self._name is None:
            os.link(b"/proc/self/fd/%d" % self.fd, name, dst_dir_fd=directory)
        else:
            os.link(self._name, name, src_dir_fd=directory, dst_dir_fd=directory)

    def _drop_name(self) -> None:
        if self._name is not None:
            os.unlink(self._name, dir_fd=self._place.directory)
            self._name = None

    def _overwrite(self) -> None:
        fd = self._place.open(os.O_WRONLY)
        try:
            os.set_blocking(fd, True)  # a FIFO with a reader takes its time
            os.lseek(self.fd, 0, os.SEEK_SET)
            copy_content(self.fd, fd)
            if stat.S_ISREG(os.fstat(fd).st_mode):
                os.ftruncate(fd, self.size)
                os.fsync(fd)
            if self._mode is not None:
                os.fchmod(fd, self._mode)
        finally:
            os.close(fd)

    def _copy_at_once(self, fd: int) -> None:
        import mmap

        if not self.size:
            return
        with (
            mmap.mmap(self.fd, self.size, prot=mmap.PROT_READ) as content,
            memoryview(content) as v,
        ):
            done = 0
            while done < self.size:
                done += os.write(fd, v[done:])


def check_writable(place: Place, existing: os.stat_result) -> None:
    """Raise the error of opening the place's file for writing, if there is one.

    A rename would replace also a file the user may not write to. A program that is running is no
    error, because it is replaced and not changed. The file is opened only when access(2) says
    no: on an overlay, opening for writing copies the whole file up.
    """
    if stat.S_ISDIR(existing.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if os.access(
        place.name, os.W_OK, dir_fd=place.directory, effective_ids=True, follow_symlinks=False
    ):
        return
    try:
        os.close(place.open(os.O_WRONLY))
    except OSError as error:
        if error.errno != errno.ETXTBSY:
            raise


def copy_content(source: int, target: int, count: int = 1 << 62) -> int:
    """Copy up to *count* bytes between the positions of two files, to the end of *source*.

    Returns:
        How many were copied. Blocks are shared where the disk can.
    """
    done = 0
    try:
        while done < count and (
            size := os.copy_file_range(source, target, min(count - done, 1 << 30))
        ):
            done += size
    except OSError as error:
        if error.errno not in _NO_RANGE_COPY:
            raise
        buffer = bytearray(_COPY_CHUNK)
        while done < count and (data := _read(source, buffer, count - done)):
            done += len(data)
            while data:
                data = data[os.write(target, data) :]
    return done


def _read(source: int, buffer: bytearray, count: int) -> memoryview:
    view = memoryview(buffer)[:count]
    return view[: os.readv(source, [view])]


def _open_elsewhere() -> int:
    for directory in _ELSEWHERE:
        with suppress(OSError):
            return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        name = os.path.join(directory, temporary_name())
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(OSError):
            fd = os.open(name, flags, 0o600)
            os.unlink(name)
            return fd
    return memory_file("spool")


def _adopt_owner(fd: int, existing: os.stat_result) -> bool:
    mine = os.fstat(fd)
    if (mine.st_uid, mine.st_gid) == (existing.st_uid, existing.st_gid):
        return True
    try:
        os.fchown(fd, existing.st_uid, existing.st_gid)
    except PermissionError:
        return False
    return True


def _copy_attributes(place: Place, fd: int) -> None:
    """Copy user attributes and access lists; file capabilities go, as they do on any write."""
    source = place.open(os.O_PATH)
    try:
        copy_attributes(b"/proc/self/fd/%d" % source, fd)
    finally:
        os.close(source)


def copy_attributes(source: bytes | int, target: int) -> None:
    """Copy extended attributes that a user may set, as far as both sides know them."""
    with suppress(OSError):
        for name in os.listxattr(source):
            if name.startswith(("user.", "system.posix_acl_")):
                with suppress(OSError):
                    os.setxattr(target, name, os.getxattr(source, name))


def _lock(fd: int) -> None:
    import fcntl

    deadline = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise errors.ResourceBusyError("the file is locked by another program") from None
            time.sleep(0.01)
