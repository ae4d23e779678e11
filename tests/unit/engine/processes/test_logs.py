import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from atoll.agent.logfile import LogFile
from atoll.engine.processes.logs import LogReader, ProcessLogs, start_of
from atoll.engine.processes.records import ProcessRecord, Status
from atoll.errors import ProcessError
from atoll.host import linux
from atoll.wire import frames
from atoll.wire.agent import LOG_SEGMENT
from atoll.wire.frames import Frame, Kind
from atoll.wire.process import StartProcessRequest

PIECE = 50_000


def record(uid: str = "u") -> ProcessRecord:
    return ProcessRecord(
        uid=uid, namespace="N", sandbox="s", layer_id="l", generation=1, id=uid,
        request=StartProcessRequest(command="x"), status=Status.RUNNING,
        start_time=datetime.now(UTC),
    )  # fmt: skip


class Writer:
    """Writes a log as the agent does."""

    def __init__(self, logs: ProcessLogs, of: ProcessRecord, limit: int = 64 << 20) -> None:
        self.fd = logs.create(of)
        self._log = LogFile(self.fd, limit)
        self.offset = 0
        self.seq = 0

    def event(self, kind: Kind, **body: object) -> None:
        frame = frames.encode_json(kind, {**body, "seq": self.seq, "offset": self.offset})
        self._log.append(frame, self.offset)

    def output(self, data: bytes, kind: Kind = Kind.STDOUT) -> None:
        frame = frames.encode_output(kind, self.seq, self.offset, data)
        self._log.append(frame, self.offset)
        self.seq += 1
        self.offset += len(data)


@pytest.fixture
def logs(tmp_path: Path) -> ProcessLogs:
    return ProcessLogs(tmp_path)


@pytest.fixture
def writer(logs: ProcessLogs) -> Iterator[Writer]:
    made = Writer(logs, record())
    yield made
    os.close(made.fd)


def offsets(found: list[Frame]) -> list[int]:
    return [start_of(frame) for frame in found]


def test_frames_come_back_in_order_over_segments(logs: ProcessLogs, writer: Writer) -> None:
    writer.event(Kind.STARTED, pid=1)
    for n in range(60):
        writer.output(b"%5d" % n * (PIECE // 5), Kind.STDERR if n % 2 else Kind.STDOUT)
    writer.event(Kind.EXITED, exit_code=0)
    with logs.open(record()) as log:
        found = list(log.rest())
        assert not log.more
    assert [f.kind for f in found[:3]] == [Kind.STARTED, Kind.STDOUT, Kind.STDERR]
    assert found[-1].kind == Kind.EXITED
    assert offsets(found[1:-1]) == [n * PIECE for n in range(60)]


@pytest.mark.parametrize("offset", [0, 1, PIECE - 1, PIECE, 999_999, 1_800_000, 10**9])
def test_an_offset_is_found_by_the_beginnings_of_segments(
    logs: ProcessLogs, writer: Writer, offset: int
) -> None:
    for _ in range(60):
        writer.output(b"x" * PIECE)
    with logs.open(record()) as log:
        log.seek(offset)
        first = log.read()[0]
    start = start_of(first)
    assert start <= offset
    assert start % (LOG_SEGMENT // (PIECE + 21) * PIECE) == 0, "it is the first of a segment"
    assert offset - start < LOG_SEGMENT or offset == 10**9


def test_a_log_is_followed_while_it_is_written(logs: ProcessLogs, writer: Writer) -> None:
    with logs.open(record()) as log:
        assert log.read() == []
        seen = 0
        for n in range(50):
            writer.output(b"x" * PIECE)
            if n % 3 == 0:
                seen += len(log.read())
        seen += len(list(log.rest()))
    assert seen == 50


def test_half_a_frame_is_waited_for(logs: ProcessLogs, writer: Writer) -> None:
    frame = frames.encode_output(Kind.STDOUT, 0, 0, b"whole")
    with logs.open(record()) as log:
        for cut in (3, 10, len(frame) - 1):
            os.pwrite(writer.fd, frame[:cut], 0)
            assert log.read() == []
        os.pwrite(writer.fd, frame, 0)
        assert len(log.read()) == 1


def test_a_reader_jumps_over_what_was_given_back(logs: ProcessLogs, writer: Writer) -> None:
    for _ in range(60):
        writer.output(b"x" * PIECE)
    with logs.open(record()) as log:
        first = log.read()
        linux.punch_hole(writer.fd, 0, 2 * LOG_SEGMENT)
        later = log.read()
        log.seek(0)
        assert log.read() == later
    per_segment = len(first)
    assert start_of(later[0]) == 2 * per_segment * PIECE


def test_a_segment_that_goes_while_it_is_read_is_not_delivered_as_zeros(
    logs: ProcessLogs, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(25):
        writer.output(b"x" * PIECE)
    real = os.pread

    def freeing(fd: int, size: int, at: int) -> bytes:
        data = real(fd, size, at)
        if size > 100 and at == 0:
            linux.punch_hole(writer.fd, 0, LOG_SEGMENT)
            return data[:5] + bytes(len(data) - 5)
        return data

    with logs.open(record()) as log:
        monkeypatch.setattr(os, "pread", freeing)
        found = log.read()
    assert start_of(found[0]) > 0
    assert all(set(frames.decode_output(f.payload).data) == {ord("x")} for f in found)


@pytest.mark.parametrize(
    "content",
    [
        frames.encode(Kind.DATA, b"not of a log"),
        frames.encode(Kind.STDOUT, b"short"),
        frames.encode(Kind.EXITED, b"{}"),
        frames.encode(Kind.STARTED, b"[]"),
        b"\x05\xff\xff\xff\xff" + b"x" * (LOG_SEGMENT + 10),
    ],
)
def test_a_damaged_log_is_an_error_and_no_crash(
    logs: ProcessLogs, writer: Writer, content: bytes
) -> None:
    os.pwrite(writer.fd, content, 0)
    with logs.open(record()) as log, pytest.raises(ProcessError):
        list(log.rest())


def test_the_exit_and_the_last_output_are_found_at_the_end(
    logs: ProcessLogs, writer: Writer
) -> None:
    assert logs.exit(record()) is None
    assert not logs.started(record())
    for _ in range(60):
        writer.output(b"x" * PIECE)
    writer.output(b"last words", Kind.STDERR)
    assert logs.exit(record()) is None
    writer.event(Kind.EXITED, exit_code=9, duration=1.5)
    found = logs.exit(record())
    assert found is not None
    assert (found.exit_code, found.offset) == (9, 60 * PIECE + 10)
    assert logs.tail(record(), 12) == b"xxlast words"
    assert logs.started(record())


def test_a_log_that_is_gone_is_empty(logs: ProcessLogs) -> None:
    with logs.open(record("none")) as log:
        log.seek(5)
        assert log.read() == []
    logs.delete(record("none"))
    assert logs.tail(record("none"), 5) == b""


def test_logs_are_private_and_made_once(logs: ProcessLogs, writer: Writer) -> None:
    path = logs.path(record())
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileExistsError):
        logs.create(record())


def test_the_first_logs_give_way_until_all_fit(logs: ProcessLogs) -> None:
    records = [record(f"u{n}") for n in range(3)]
    for one in records:
        writer = Writer(logs, one)
        for _ in range(80):
            writer.output(b"x" * PIECE)
        os.close(writer.fd)
    logs.shrink(records, 7 << 20)
    used = [logs.path(one).stat().st_blocks * 512 for one in records]
    assert sum(used) <= 7 << 20
    assert used[2] > used[1] or used[1] > used[0]
    assert used[2] == max(used)
    for one in records:
        with logs.open(one) as log:
            assert start_of(list(log.rest())[-1]) == 79 * PIECE, "the newest output stays"


def test_deleting_leaves_no_empty_directory(logs: ProcessLogs, tmp_path: Path) -> None:
    os.close(logs.create(record("a")))
    os.close(logs.create(record("b")))
    logs.delete(record("a"))
    assert logs.lives() == {"l"}
    logs.delete(record("b"))
    assert logs.lives() == set()
    os.close(logs.create(record("c")))
    logs.delete_all("l")
    assert list(tmp_path.iterdir()) == []


def test_reading_closes_its_descriptor(logs: ProcessLogs, writer: Writer) -> None:
    fd = os.open(logs.path(record()), os.O_RDONLY)
    with LogReader(fd):
        pass
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)
