import json
import os
import resource
from collections.abc import Iterator

import pytest

from atoll.agent.logfile import LogFile
from atoll.wire import frames
from atoll.wire.agent import LOG_SEGMENT
from atoll.wire.frames import Kind

PIECE = 60_000


@pytest.fixture
def fd() -> Iterator[int]:
    made = os.memfd_create("log")
    yield made
    os.close(made)


def fill(log: LogFile, count: int) -> None:
    for n in range(count):
        frame = frames.encode_output(Kind.STDOUT, n, n * PIECE, b"x" * PIECE)
        log.append(frame, n * PIECE)


def first_offset(fd: int, segment: int) -> int | None:
    head = os.pread(fd, 32, segment * LOG_SEGMENT)
    return frames.decode_output(head[5:]).offset if head[0] else None


def test_no_frame_crosses_the_end_of_a_segment(fd: int) -> None:
    fill(LogFile(fd, 64 << 20), 60)
    per_segment = LOG_SEGMENT // (PIECE + 21)
    offsets = [first_offset(fd, segment) for segment in range(3)]
    assert offsets == [n * per_segment * PIECE for n in range(3)]


def test_old_segments_are_given_back(fd: int) -> None:
    fill(LogFile(fd, 2 * LOG_SEGMENT), 80)
    last = os.fstat(fd).st_size // LOG_SEGMENT
    kept = [first_offset(fd, segment) is not None for segment in range(last + 1)]
    assert kept == [False] * (last - 1) + [True, True]
    assert os.fstat(fd).st_blocks * 512 <= 2 * LOG_SEGMENT


def test_what_could_not_be_written_is_a_gap_in_front_of_what_can_be_again(fd: int) -> None:
    log = LogFile(fd, 64 << 20)
    log.append(frames.encode_output(Kind.STDOUT, 0, 0, b"a"), 0)
    size = os.fstat(fd).st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))
    log.append(frames.encode_output(Kind.STDOUT, 1, 1, b"lost"), 1)
    log.append(frames.encode_output(Kind.STDERR, 2, 5, b"too"), 5)
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.fstat(fd).st_size == size
    log.append(frames.encode_output(Kind.STDOUT, 3, 8, b"z"), 8)
    found = list(frames.Decoder().feed(os.pread(fd, 1000, 0)))
    assert [frame.kind for frame in found] == [Kind.STDOUT, Kind.GAP, Kind.STDOUT]
    gap = json.loads(found[1].payload)
    assert (gap["from_offset"], gap["to_offset"]) == (1, 8)
    assert gap["reason"].startswith("log: ")
