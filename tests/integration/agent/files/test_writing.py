import fcntl
import hashlib
import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll import errors
from atoll.wire.frames import Kind
from integration.agent.files_calls import NOBODY, Call, call, read, shared_directory, write

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="changes the user id")


@pytest.fixture
def shared() -> Iterator[Path]:
    with shared_directory() as path:
        yield path


def _names(path: Path) -> list[str]:
    return sorted(os.listdir(path))


@pytest.mark.parametrize("size", [0, 1, 20_000, 1 << 20, (33 << 20) + 7])
def test_any_size_comes_back_equal(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    chunks = [content[at : at + 700_000] for at in range(0, size, 700_000)]
    assert write(tmp_path / "f", *chunks)["size"] == size
    assert hashlib.sha256(read(tmp_path / "f")).digest() == hashlib.sha256(content).digest()


def test_parents_are_made(tmp_path: Path) -> None:
    assert write(tmp_path / "a/b/c", b"x")["path"] == str(tmp_path / "a/b/c")
    assert (tmp_path / "a/b/c").read_bytes() == b"x"
    assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "a/b/c").stat().st_mode) == 0o644


@pytest.mark.parametrize("name", ["a b", "-rf", "q'\"$(id);`x`", "new\nline", "x" * 255, "e\uef80"])
def test_any_name_works(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, b"x")
    assert read(tmp_path / name) == b"x"
    assert [f["name"] for f in call("list_files", path=str(tmp_path)).reply["files"]] == [name]


def test_a_name_over_the_limit_is_typed(tmp_path: Path) -> None:
    with pytest.raises(errors.NameTooLongError) as caught:
        write(tmp_path / ("x" * 256), b"")
    assert caught.value.context["path"].startswith(str(tmp_path))


def test_mode_owner_and_attributes_of_an_existing_file_stay(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    path.chmod(0o751)
    if os.getuid() == 0:
        os.chown(path, 1234, 4321)
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        pytest.skip("no extended attributes here")
    before = path.stat()
    write(path, b"new")
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )
    assert os.getxattr(path, "user.note") == b"kept"
    assert path.read_bytes() == b"new"


def test_a_mode_that_is_given_holds(tmp_path: Path) -> None:
    write(tmp_path / "f", b"", mode=0o4711)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o4711


def test_a_connection_that_ends_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    running = Call("write_file", path=str(tmp_path / "f"))
    running.send(Kind.DATA, b"x" * 5_000_000)
    running.finish()
    assert (tmp_path / "f").read_bytes() == b"old"
    assert _names(tmp_path) == ["f"]


def test_a_cancelled_write_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    running = Call("write_file", path=str(tmp_path / "f"))
    running.send(Kind.DATA, b"new")
    running.send(Kind.CANCEL)
    with pytest.raises(errors.OperationInterruptedError):
        running.answer()
    assert (tmp_path / "f").read_bytes() == b"old"
    assert _names(tmp_path) == ["f"]


def test_a_killed_writer_leaves_the_old_file_and_no_temporary(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    running = Call("write_file", path=str(tmp_path / "f"))
    running.send(Kind.DATA, b"x" * 5_000_000)  # more than the socket holds: it has begun
    os.kill(running.pid, signal.SIGKILL)
    os.waitpid(running.pid, 0)
    running.socket.close()
    assert (tmp_path / "f").read_bytes() == b"old"
    assert _names(tmp_path) == ["f"]


def test_a_reader_never_sees_a_mixture(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a" * 100_000)
    running = Call("write_file", path=str(path))
    running.send(Kind.DATA, b"b" * 50_000)
    assert path.read_bytes() == b"a" * 100_000
    running.send_body([b"b" * 50_000])
    running.answer()
    assert path.read_bytes() == b"b" * 100_000


def test_final_links_are_followed_also_dangling_ones(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("sub/there")
    (tmp_path / "second").symlink_to(tmp_path / "link")
    write(tmp_path / "second", b"x")
    assert (tmp_path / "sub/there").read_bytes() == b"x"
    assert (tmp_path / "link").is_symlink()


def test_a_link_with_a_slash_at_its_end_means_a_directory(tmp_path: Path) -> None:
    """As for open(2); `rstrip` of the slash would make it mean the file."""
    (tmp_path / "f").write_bytes(b"old")
    (tmp_path / "file").symlink_to("f/")
    (tmp_path / "nothing").symlink_to("new/")
    with pytest.raises(errors.NotDirectoryError):
        write(tmp_path / "file", b"x")
    with pytest.raises(errors.FileNotFoundError):
        write(tmp_path / "nothing", b"x")
    assert (tmp_path / "f").read_bytes() == b"old"
    assert not (tmp_path / "new").exists()


def test_a_loop_of_links_is_typed(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(errors.TooManyLinksError):
        write(tmp_path / "a", b"x")


def test_appends_add_to_the_end(tmp_path: Path) -> None:
    write(tmp_path / "f", b"one", append=True, mode=0o600)
    inode = (tmp_path / "f").stat().st_ino
    assert write(tmp_path / "f", b"two", b"three", append=True)["size"] == 8
    assert (tmp_path / "f").read_bytes() == b"onetwothree"
    assert (tmp_path / "f").stat().st_ino == inode
    assert _names(tmp_path) == ["f"]


def test_appends_at_the_same_time_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "log"
    calls = [Call("write_file", path=str(path), append=True) for _ in range(8)]
    for number, running in enumerate(calls):
        running.send_body([b"%d" % number * 100_000, b"\n"])
    for running in calls:
        running.answer()
    lines = path.read_bytes().splitlines()
    assert len(lines) == 8
    assert all(len(line) == 100_000 and len(set(line)) == 1 for line in lines)


def test_a_locked_file_does_not_hold_an_append_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atoll.agent.files.spools.LOCK_TIMEOUT", 0.1)
    (tmp_path / "f").write_bytes(b"")
    with (tmp_path / "f").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(errors.ResourceBusyError):
            write(tmp_path / "f", b"x", append=True)


def test_directories_and_missing_bodies_are_typed(tmp_path: Path) -> None:
    with pytest.raises(errors.IsDirectoryError):
        write(tmp_path, b"x")
    with pytest.raises(errors.IsDirectoryError):
        write(f"{tmp_path}/new/", b"x")
    (tmp_path / "file").touch()
    with pytest.raises(errors.NotDirectoryError):
        write(tmp_path / "file/below", b"x")


def test_an_error_is_answered_while_the_body_still_comes(tmp_path: Path) -> None:
    """A reset of the connection must not overtake the error."""
    running = Call("write_file", path=str(tmp_path))
    running.send_body(b"x" * 500_000 for _ in range(20))
    with pytest.raises(errors.IsDirectoryError):
        running.answer()


def test_devices_are_written_to_and_not_replaced(tmp_path: Path) -> None:
    write("/dev/null", b"x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(errors.NoSpaceError) as caught:
        write("/dev/full", b"x")
    assert caught.value.context["path"] == "/dev/full"


def test_a_fifo_with_a_reader_gets_the_content(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    write(tmp_path / "fifo", b"hello")
    assert os.read(reader, 100) == b"hello"
    os.close(reader)
    with pytest.raises(errors.FilesystemError):
        write(tmp_path / "fifo", b"nobody reads")


def test_a_running_program_can_be_replaced(tmp_path: Path) -> None:
    program = tmp_path / "sleep"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    pid = os.posix_spawn(program, ["sleep", "10"], {})
    time.sleep(0.05)
    try:
        write(program, b"#!/bin/sh\n")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert program.read_bytes() == b"#!/bin/sh\n"
    assert stat.S_IMODE(program.stat().st_mode) == 0o755


def test_temporaries_are_named_where_the_file_system_has_none_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.O_TMPFILE", os.O_RDONLY)  # opening a directory for writing: EISDIR
    write(tmp_path / "f", b"one")
    write(tmp_path / "f", b"two")
    running = Call("write_file", path=str(tmp_path / "f"))
    running.send(Kind.DATA, b"x" * 5_000_000)
    running.finish()
    assert (tmp_path / "f").read_bytes() == b"two"
    assert _names(tmp_path) == ["f"]


@needs_root
def test_the_user_s_rights_hold(shared: Path) -> None:
    secret = shared / "secret"
    secret.mkdir(mode=0o700)
    (secret / "f").write_bytes(b"root's")
    (shared / "link").symlink_to(secret / "f")
    (shared / "readonly").write_bytes(b"root's")
    (shared / "readonly").chmod(0o644)
    for path in (secret / "f", shared / "link", shared / "readonly", secret / "new"):
        with pytest.raises(errors.PermissionDeniedError) as caught:
            write(path, b"x", uid=NOBODY)
        assert caught.value.context["path"] == str(path)
    assert (secret / "f").read_bytes() == (shared / "readonly").read_bytes() == b"root's"


@needs_root
def test_a_read_only_file_of_the_user_is_not_replaced(shared: Path) -> None:
    """A rename would not ask for the file's own mode."""
    write(shared / "f", b"old", uid=NOBODY, mode=0o444)
    with pytest.raises(errors.PermissionDeniedError):
        write(shared / "f", b"new", uid=NOBODY)
    assert (shared / "f").read_bytes() == b"old"


@needs_root
def test_a_file_of_another_owner_keeps_it(shared: Path) -> None:
    """The user may write but not give away: the content is changed in place."""
    path = shared / "f"
    path.write_bytes(b"something longer")
    path.chmod(0o666)
    inode = path.stat().st_ino
    write(path, b"new", uid=NOBODY)
    assert path.read_bytes() == b"new"
    assert (path.stat().st_uid, path.stat().st_ino) == (os.getuid(), inode)


@needs_root
def test_a_writable_file_in_a_closed_directory_is_written_in_place(shared: Path) -> None:
    closed = shared / "closed"
    closed.mkdir()
    (closed / "f").write_bytes(b"old")
    (closed / "f").chmod(0o666)
    write(closed / "f", b"new", uid=NOBODY)
    write(closed / "f", b"er", uid=NOBODY, append=True)
    assert (closed / "f").read_bytes() == b"newer"
    with pytest.raises(errors.PermissionDeniedError):
        write(closed / "other", b"x", uid=NOBODY)
    assert _names(closed) == ["f"]


@needs_root
def test_a_directory_that_cannot_be_read_can_be_written_to(shared: Path) -> None:
    drop = shared / "drop"
    drop.mkdir()
    drop.chmod(0o733)
    write(drop / "f", b"x", uid=NOBODY)
    assert (drop / "f").read_bytes() == b"x"
