import os
import resource
from collections.abc import AsyncIterator, Callable

import pytest

from atoll.engine.link.link import LinkError
from atoll.engine.processes.copying import LogCopy
from atoll.engine.processes.logs import LogReader
from atoll.wire import frames
from atoll.wire.agent import LOG_SEGMENT
from atoll.wire.frames import Frame, Kind

PIECE = 60_000

Copies = Callable[[], LogCopy]


@pytest.fixture
async def file() -> AsyncIterator[int]:
    made = os.memfd_create("log")
    yield made
    os.close(made)


@pytest.fixture
def copies(file: int) -> Copies:
    """Makes copies of one log, one after the other."""
    return lambda: LogCopy(os.dup(file), 64 << 20)


def output(offset: int, data: bytes, kind: Kind = Kind.STDOUT) -> Frame:
    return Frame(kind, frames.encode_output(kind, 0, offset, data)[5:])


def event(kind: Kind, **body: object) -> Frame:
    return Frame(kind, frames.encode_json(kind, body)[5:])


def content(file: int) -> list[Frame]:
    with LogReader(os.dup(file)) as reader:
        return list(reader.rest())


def text(file: int) -> bytes:
    found = (frame for frame in content(file) if frame.kind in {Kind.STDOUT, Kind.STDERR})
    return b"".join(frames.decode_output(frame.payload).data for frame in found)


async def test_a_log_is_what_the_agent_sent_without_what_belongs_in_none(
    file: int, copies: Copies
) -> None:
    sent = [
        event(Kind.STARTED, pid=1),
        output(0, b"a"),
        output(1, b"b", Kind.STDERR),
        event(Kind.EXITED, exit_code=3, offset=2),
    ]
    async with copies() as copy:
        for frame in (Frame(Kind.HEARTBEAT, b""), *sent):
            await copy.append(frame)
    assert content(file) == sent


async def test_a_connection_made_again_adds_nothing_twice(file: int, copies: Copies) -> None:
    """Start and end are told to everybody who attaches, whatever they have."""
    start, end = event(Kind.STARTED, pid=1), event(Kind.EXITED, exit_code=0, offset=2)
    async with copies() as copy:
        for frame in (start, output(0, b"a"), start, output(0, b"a"), output(1, b"b"), end, end):
            await copy.append(frame)
    assert content(file) == [start, output(0, b"a"), output(1, b"b"), end]


async def test_the_next_engine_goes_on_where_the_last_one_was_killed(
    file: int, copies: Copies
) -> None:
    async with copies() as copy:
        await copy.append(event(Kind.STARTED, pid=1))
        for n in range(40):
            await copy.append(output(n * PIECE, b"x" * PIECE))
    whole = os.fstat(file).st_size
    os.pwrite(file, b"\x05\x00\x00\x10\x00half", whole)
    async with copies() as copy:
        assert os.fstat(file).st_size == whole
        assert copy.offset == 40 * PIECE
        await copy.append(event(Kind.STARTED, pid=1))
        await copy.append(output(40 * PIECE, b"end"))
    assert text(file) == b"x" * (40 * PIECE) + b"end"
    assert [frame.kind for frame in content(file)].count(Kind.STARTED) == 1


async def test_half_a_frame_at_the_head_of_a_segment_is_written_over(
    file: int, copies: Copies
) -> None:
    async with copies() as copy:
        await copy.append(output(0, b"a"))
    os.pwrite(file, b"\x05\x00\x00\x10\x00half", LOG_SEGMENT)
    async with copies() as copy:
        assert copy.offset == 1
        await copy.append(output(1, b"b"))
    assert text(file) == b"ab"


async def test_what_could_not_be_written_is_a_gap_in_front_of_what_can_be_again(
    file: int, copies: Copies
) -> None:
    async with copies() as copy:
        await copy.append(output(0, b"a"))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.fstat(file).st_size + 10, before[1]))
        try:
            await copy.append(output(1, b"lost"))
            await copy.append(output(5, b"too"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        await copy.append(output(8, b"z"))
    gap = event(Kind.GAP, from_offset=1, to_offset=8, reason="log: File too large", seq=0, offset=8)
    assert content(file) == [output(0, b"a"), gap, output(8, b"z")]


async def test_a_log_keeps_its_last_segments(file: int) -> None:
    async with LogCopy(os.dup(file), 2 * LOG_SEGMENT) as copy:
        for n in range(80):
            await copy.append(output(n * PIECE, b"x" * PIECE))
    assert os.fstat(file).st_blocks * 512 <= 2 * LOG_SEGMENT
    assert frames.decode_output(content(file)[-1].payload).offset == 79 * PIECE


@pytest.mark.parametrize(
    "frame",
    [
        output(0, b"x" * LOG_SEGMENT),
        Frame(Kind.ERROR, b"no JSON"),
        Frame(Kind.GAP, b'{"from_offset": "here"}'),
        Frame(Kind.STDOUT, b"short"),
    ],
    ids=lambda frame: Kind(frame.kind).name,
)
async def test_what_no_agent_of_ours_sends_never_reaches_the_log(
    frame: Frame, file: int, copies: Copies
) -> None:
    async with copies() as copy:
        with pytest.raises(LinkError):
            await copy.append(frame)
    assert os.fstat(file).st_size == 0
