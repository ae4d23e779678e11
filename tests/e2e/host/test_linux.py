import errno
import fcntl
import os
import signal
import socket
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.host import linux

pytestmark = pytest.mark.e2e

MAP = "0 500000 65536\n65536 0 1\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    if os.geteuid():
        pytest.skip("needs root")
    with tempfile.TemporaryDirectory(prefix="storage-network-") as path:
        yield Path(path)


def test_a_failed_call_names_its_path_and_reason(folder: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        linux.mount("none", folder / "missing", "tmpfs")
    assert caught.value.filename == str(folder / "missing")
    with pytest.raises(OSError) as refused:
        linux.umount(folder)
    assert refused.value.errno == errno.EINVAL


def test_a_final_link_is_not_followed_by_an_unmount(folder: Path) -> None:
    target = folder / "target"
    target.mkdir()
    (folder / "link").symlink_to(target)
    linux.mount("none", target, "tmpfs")
    with pytest.raises(OSError):
        linux.umount(folder / "link")
    linux.umount(target)


def test_a_file_system_is_made_detached_and_then_attached(folder: Path) -> None:
    context = linux.fsopen("tmpfs")
    linux.fsconfig(context, "size", "1m")
    linux.fsconfig(context, "ro")
    made = linux.fsmount(context, linux.MOUNT_ATTR_NOSUID | linux.MOUNT_ATTR_NODEV)
    linux.move_mount(made, folder)
    os.close(made)
    os.close(context)
    stat = os.statvfs(folder)
    linux.umount(folder)
    assert stat.f_flag & os.ST_RDONLY
    assert stat.f_flag & os.ST_NOSUID
    assert stat.f_blocks * stat.f_frsize == 1 << 20


def test_an_idmapped_copy_shows_other_owners(folder: Path) -> None:
    (folder / "source").mkdir()
    (folder / "target").mkdir()
    (folder / "source" / "file").touch()
    userns = linux.user_namespace(MAP, MAP)
    clone = linux.open_tree(folder / "source")
    linux.mount_setattr(clone, attr_set=linux.MOUNT_ATTR_IDMAP, userns_fd=userns)
    linux.move_mount(clone, folder / "target")
    os.close(clone)
    os.close(userns)
    owner = (folder / "target" / "file").stat().st_uid
    linux.umount(folder / "target")
    assert owner == 500_000


def test_a_user_namespace_needs_no_process_once_it_is_made(folder: Path) -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text()
    fd = linux.user_namespace(MAP, MAP)
    assert children.read_text() == before
    assert os.readlink(f"/proc/self/fd/{fd}").startswith("user:")
    assert not os.get_inheritable(fd)
    os.close(fd)


def test_a_map_the_kernel_refuses_leaves_no_process(folder: Path) -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text()
    with pytest.raises(OSError):
        linux.user_namespace("nonsense", MAP)
    assert children.read_text() == before


def test_a_descriptor_of_another_process_is_copied(folder: Path) -> None:
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        signal.pause()
    pidfd = os.pidfd_open(pid)
    try:
        copy = socket.socket(fileno=linux.pidfd_getfd(pidfd, theirs.fileno()))
        theirs.close()
        copy.sendall(b"hello")
        assert ours.recv(10) == b"hello"
        copy.close()
    finally:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(pidfd)
        ours.close()


def in_child(call: object) -> int:
    assert callable(call)
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(int(call()))
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_sys_resource_is_dropped_from_the_effective_set_only(folder: Path) -> None:
    def call() -> bool:
        before = linux.capget()
        linux.drop_sys_resource()
        after = linux.capget()
        return after == (before[0] & ~(1 << linux.CAP_SYS_RESOURCE), *before[1:])

    assert in_child(call) == 1


def test_every_capability_is_read_and_set(folder: Path) -> None:
    """The upper 32 are in a second word, which is easily mixed up with another set."""

    def call() -> bool:
        wanted = 1 << 21 | 1 << 38 | 1
        linux.capset(wanted & ~1, wanted, 1)
        status = Path("/proc/thread-self/status").read_text()
        shown = {
            k: int(v, 16) for k, v in (x.split(":\t") for x in status.splitlines() if "Cap" in x)
        }
        read = linux.capget()
        return (
            read
            == (wanted & ~1, wanted, 1)
            == (
                shown["CapEff"],
                shown["CapPrm"],
                shown["CapInh"],
            )
        )

    assert in_child(call) == 1


def test_an_orphan_becomes_the_subreapers_child(folder: Path) -> None:
    def call() -> bool:
        linux.set_child_subreaper()
        reading, writing = os.pipe()
        if os.fork() == 0:
            if os.fork() == 0:
                os.read(reading, 1)
                os._exit(0)
            os._exit(0)
        os.wait()
        os.write(writing, b"x")
        return os.wait()[1] == 0

    assert in_child(call) == 1


def test_a_child_ends_with_its_parent(folder: Path) -> None:
    reading, writing = os.pipe()

    def call() -> int:
        if os.fork() == 0:
            linux.set_parent_death_signal(signal.SIGKILL)
            os.write(writing, b"x")
            signal.pause()
        os.read(reading, 1)
        return 0

    assert in_child(call) == 0
    os.close(writing)
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_a_thread_may_leave_its_namespace_and_come_back(folder: Path) -> None:
    def call() -> bool:
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        before = os.readlink("/proc/thread-self/ns/net")
        linux.unshare(linux.CLONE_NEWNET)
        away = os.readlink("/proc/thread-self/ns/net")
        linux.setns(home, linux.CLONE_NEWNET)
        return before == os.readlink("/proc/thread-self/ns/net") != away

    assert in_child(call) == 1
    fd = os.open("/proc/self/ns/uts", os.O_RDONLY)
    with pytest.raises(OSError):
        linux.setns(fd, linux.CLONE_NEWNET)
    os.close(fd)


def test_a_user_namespace_can_count_against_another_user(folder: Path) -> None:
    """And the caller is who it was, with the capabilities it had."""
    before = os.geteuid(), linux.capget()
    fd = linux.user_namespace(MAP, MAP, owner=500_000)
    owner = fcntl.ioctl(fd, 0xB704, struct.pack("I", 0))  # NS_GET_OWNER_UID
    os.close(fd)
    assert struct.unpack("I", owner) == (500_000,)
    assert (os.geteuid(), linux.capget()) == before


def test_a_link_is_followed_within_the_root_that_is_given(folder: Path) -> None:
    (folder / "in").mkdir()
    (folder / "in/file").touch()
    (folder / "in/link").symlink_to("/../../file")
    top = os.open(folder / "in", os.O_PATH)
    found = linux.open_in_root(top, "link")
    assert os.fstat(found).st_ino == (folder / "in/file").stat().st_ino
    for fd in (found, top):
        os.close(fd)
