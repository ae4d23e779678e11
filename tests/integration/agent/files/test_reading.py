import os
from pathlib import Path

import msgspec
import pytest

from atoll import errors
from atoll.wire.files import FileMeta
from atoll.wire.frames import Kind
from integration.agent.files_calls import NOBODY, Call, call, read


def _meta(path: object) -> FileMeta:
    return msgspec.convert(call("read_file", path=str(path)).reply, FileMeta)


def test_the_answer_begins_with_what_the_file_is(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# größe\n")
    (tmp_path / "a.md").chmod(0o640)
    meta = _meta(tmp_path / "a.md")
    assert (meta.size, meta.mime_type, meta.is_binary) == (10, "text/markdown", False)
    assert (meta.encoding, meta.mode) == ("utf-8", 0o640)


@pytest.mark.parametrize(
    ("content", "is_binary"),
    [
        (bytes(range(256)), True),
        (b"", False),
        (b"\xe2\x82", True),
        ("€".encode() * 3_000_000, False),  # a character is cut where the look at it ends
        (b"x" * (4 << 20) + b"\xff", False),  # documented: the first 4 MiB decide
    ],
)
def test_valid_utf8_is_text(tmp_path: Path, content: bytes, is_binary: bool) -> None:
    (tmp_path / "f").write_bytes(content)
    answer = call("read_file", path=str(tmp_path / "f"))
    assert answer.reply["isBinary"] is is_binary
    assert answer.data == content


@pytest.mark.parametrize(
    ("offset", "length", "wanted"),
    [(0, None, b"0123456789"), (3, 4, b"3456"), (8, 100, b"89"), (10, None, b""), (4, 0, b"")],
)
def test_a_part_can_be_read(tmp_path: Path, offset: int, length: int | None, wanted: bytes) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    answer = call("read_file", path=str(tmp_path / "f"), offset=offset, length=length)
    assert answer.data == wanted
    assert answer.reply["size"] == 10


def test_an_offset_beyond_the_end_is_typed(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123")
    with pytest.raises(errors.RangeNotSatisfiableError) as caught:
        read(tmp_path / "f", offset=5)
    assert caught.value.context["size"] == 4


def test_the_etag_changes_with_the_content_also_when_times_are_set_back(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one")
    os.utime(path, (1, 1))
    before = _meta(path).etag
    assert _meta(path).etag == before
    path.write_bytes(b"two")
    os.utime(path, (1, 1))
    assert _meta(path).etag != before


def test_a_file_that_shrinks_is_an_error_and_not_a_shorter_file(tmp_path: Path) -> None:
    """Frames stay in step, and the zeros that fill them are never taken for content."""
    path = tmp_path / "f"
    path.write_bytes(b"x" * (30 << 20))
    running = Call("read_file", path=str(path))
    frames = running.frames()
    assert next(frames).kind == Kind.REPLY
    assert next(frames).kind == Kind.DATA
    os.truncate(path, 5 << 20)
    kinds = [frame.kind for frame in frames]
    assert kinds[-1] == Kind.ERROR
    assert Kind.END not in kinds
    running.finish()


def test_a_file_that_grows_is_read_to_its_announced_size(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * (30 << 20))
    running = Call("read_file", path=str(path))
    with path.open("ab") as file:
        file.write(b"y" * 1000)
    answer = running.answer()
    assert len(answer.data) >= 30 << 20
    assert len(answer.data) == answer.reply["size"]


def test_files_of_proc_have_the_size_of_what_is_read() -> None:
    answer = call("read_file", path="/proc/self/status")
    assert answer.data.startswith(b"Name:")
    assert len(answer.data) == answer.reply["size"]
    assert call("read_file", path="/proc/self/status", offset=0, length=5).data == b"Name:"


def test_pipes_devices_and_directories_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", "/dev/zero"):
        with pytest.raises(errors.FilesystemError):
            read(path)
    with pytest.raises(errors.IsDirectoryError):
        read(tmp_path)


def test_a_missing_file_is_typed_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(errors.FileNotFoundError) as caught:
        read("no/such", cwd=str(tmp_path))
    assert caught.value.context["path"] == f"{tmp_path}/no/such"


@pytest.mark.skipif(os.getuid() != 0, reason="changes the user id")
def test_a_file_without_rights_is_typed() -> None:
    with pytest.raises(errors.PermissionDeniedError):
        read("/etc/shadow", uid=NOBODY)


def test_a_caller_that_goes_ends_the_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * (8 << 20))
    running = Call("read_file", path=str(tmp_path / "f"))
    running.socket.recv(100)
    running.finish()  # asserts that the child left quietly


def test_memory_stays_flat(tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as file:
        file.truncate(1 << 30)
    running = Call("read_file", path=str(tmp_path / "f"))
    total = sum(len(frame.payload) for frame in running.frames() if frame.kind == Kind.DATA)
    assert total == 1 << 30
    running.socket.close()
    _, status, usage = os.wait4(running.pid, 0)
    assert status == 0
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert usage.ru_maxrss < before + (32 << 10)  # KiB; the child starts as a copy of this process
