import os
import stat

from atoll.agent.descriptors import absorb, keep_only, memory_file, read_all, read_most, spill


def test_a_memory_file_is_for_its_owner_only() -> None:
    for fd in (memory_file("x"), spill(b"content")):
        assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o600
        os.close(fd)


def test_a_memory_file_gives_back_what_it_holds_and_keeps_its_position() -> None:
    fd = spill(b"0123456789" * 100_000)
    assert os.read(fd, 3) == b"012"
    assert len(read_all(fd)) == 1_000_000
    assert read_most(fd, 4) == b"0123"
    assert os.read(fd, 2) == b"34"
    assert len(absorb(fd)) == 1_000_000


def test_a_child_keeps_only_what_it_is_told() -> None:
    """Also when the first one to be closed is 0: os.closerange(0, 0) would close everything."""
    for kept in ({0, 1, 2}, {1, 5}, set[int]()):
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.dup2(writer, 700)
                wanted = kept | {700}
                for fd in kept - {0, 1, 2}:
                    os.dup2(0, fd)
                keep_only(wanted)
                found = [fd for fd in range(1024) if _is_open(fd)]
                os.write(700, repr(found == sorted(wanted)).encode())
            finally:
                os._exit(0)
        os.close(writer)
        assert os.read(reader, 99) == b"True"
        os.close(reader)
        os.waitpid(pid, 0)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
