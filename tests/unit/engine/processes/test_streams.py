import asyncio
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.engine.processes import streams
from atoll.engine.processes.logs import LogReader
from atoll.engine.processes.records import GONE, ProcessRecord, Status
from atoll.engine.processes.streams import Cut, Process, follow, last
from atoll.errors import from_wire
from atoll.wire import frames
from atoll.wire.frames import Frame, Kind
from atoll.wire.process import StartProcessRequest


def record(**fields: Any) -> ProcessRecord:
    known: dict[str, Any] = {
        "uid": "u", "namespace": "N", "sandbox": "s", "layer_id": "l", "generation": 1, "id": "p",
        "request": StartProcessRequest(command="x"), "status": Status.RUNNING, "pid": 7,
        "start_time": datetime.now(UTC),
    }  # fmt: skip
    return ProcessRecord(**known | fields)


def output(offset: int, data: bytes, kind: Kind = Kind.STDOUT) -> bytes:
    return frames.encode_output(kind, 0, offset, data)


def exited(offset: int, code: int = 0) -> bytes:
    return frames.encode_json(Kind.EXITED, {"exit_code": code, "offset": offset})


def decoded(*data: bytes) -> list[Frame]:
    return list(frames.Decoder().feed(b"".join(data)))


def gap(frame: Frame) -> tuple[int, int]:
    assert frame.kind == Kind.GAP
    body = json.loads(frame.payload)
    return body["from_offset"], body["to_offset"]


class Log:
    """A log in a file of the test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def add(self, *data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(b"".join(data))

    def open(self) -> LogReader:
        return LogReader(os.open(self.path, os.O_RDONLY))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log")


@given(st.lists(st.integers(1, 50), max_size=8), st.data())
def test_from_any_offset_exactly_the_rest_is_told(sizes: list[int], data: st.DataObject) -> None:
    whole = bytes(n % 251 for n in range(sum(sizes)))
    start = data.draw(st.integers(0, len(whole) + 3))
    cut, found, at = Cut(start), b"", 0
    for size in sizes:
        for frame in cut.take(*decoded(output(at, whole[at : at + size]))):
            piece = frames.decode_output(frame.payload)
            assert piece.offset == start + len(found)
            found += piece.data
        at += size
    assert found == whole[start:]


def test_what_is_missing_is_a_gap_and_known_gaps_are_told_once() -> None:
    cut = Cut(2)
    found = [
        part
        for frame in decoded(
            output(5, b"ab"),
            frames.encode_json(Kind.GAP, {"from_offset": 7, "to_offset": 9, "reason": "full"}),
            output(9, b"c"),
            exited(12),
        )
        for part in cut.take(frame)
    ]
    kinds = [frame.kind for frame in found]
    assert kinds == [Kind.GAP, Kind.STDOUT, Kind.GAP, Kind.STDOUT, Kind.GAP, Kind.EXITED]
    assert [gap(frame) for frame in found if frame.kind == Kind.GAP] == [(2, 5), (7, 9), (10, 12)]


def test_an_unknown_outcome_is_an_error_and_a_known_one_an_exit() -> None:
    lost = last(record(status=Status.KILLED, reason=GONE))
    error = from_wire(json.loads(lost.payload))
    assert (lost.kind, error.wire_code) == (Kind.ERROR, "PROCESS_ERROR")
    assert error.context["reason"] == GONE
    known = last(record(status=Status.FAILED, exit_code=4, size=9))
    body = msgspec.json.decode(known.payload, type=dict[str, Any])
    assert (known.kind, body["exit_code"], body["offset"]) == (Kind.EXITED, 4, 9)


async def kinds(log: Log, process: Process, start: int = 0, **options: Any) -> Iterator[Frame]:
    options = {"to_end": True, "limit": None} | options
    with log.open() as reader:
        return iter([frame async for frame in follow(reader, process, start, **options)])


async def test_a_finished_log_is_told_from_start_to_exit(log: Log) -> None:
    log.add(frames.encode_json(Kind.STARTED, {"pid": 7, "offset": 0}), output(0, b"a"), exited(1))
    found = list(await kinds(log, Process(record(status=Status.COMPLETED, exit_code=0))))
    assert [frame.kind for frame in found] == [Kind.STARTED, Kind.STDOUT, Kind.EXITED]


async def test_a_log_without_an_exit_ends_with_what_the_record_knows(log: Log) -> None:
    log.add(output(0, b"a"))
    process = Process(record(status=Status.FAILED, exit_code=1, size=5))
    found = list(await kinds(log, process))
    assert [f.kind for f in found] == [Kind.STARTED, Kind.STDOUT, Kind.GAP, Kind.EXITED]
    assert gap(found[2]) == (1, 5)


async def test_an_end_is_told_when_it_is_stored(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.add(output(0, b"hello"), exited(5))
    process = Process(record())
    stored = asyncio.get_running_loop().call_later(0.02, process.done.set)
    found = list(await kinds(log, process))
    assert process.done.is_set()
    assert found[-1].kind == Kind.EXITED
    stored.cancel()
    monkeypatch.setattr(streams, "STORED", 0.01)  # a full disk does not hold it for ever
    assert list(await kinds(log, Process(record())))[-1].kind == Kind.EXITED


async def test_an_end_that_no_agent_tells_is_stored_by_who_reads_it(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart of the engine the agent may be asked seconds later than the log is read."""
    monkeypatch.setattr(streams, "HEARD", 0.01)
    log.add(output(0, b"hello"), exited(5))
    process, asked = Process(record()), []

    async def settle(which: Process) -> None:
        asked.append(which)
        which.done.set()

    with log.open() as reader:
        found = [
            frame
            async for frame in follow(reader, process, 0, to_end=True, limit=None, settle=settle)
        ]
    assert (found[-1].kind, asked) == (Kind.EXITED, [process])


async def test_without_follow_the_stream_ends_where_the_log_does(log: Log) -> None:
    log.add(output(0, b"abc"))
    found = list(await kinds(log, Process(record()), to_end=False))
    assert [frame.kind for frame in found] == [Kind.STARTED, Kind.STDOUT, Kind.END]
    assert json.loads(found[-1].payload) == {"offset": 3}


async def test_a_limit_ends_a_stream_that_is_followed(log: Log) -> None:
    found = list(await kinds(log, Process(record()), limit=0.03))
    assert [frame.kind for frame in found] == [Kind.STARTED, Kind.END]


async def test_followers_are_told_when_nothing_more_comes(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once per pause: what they have of a line is all there is for now."""
    monkeypatch.setattr(streams, "QUIET", 0.02)
    process = Process(record())
    found = []
    with log.open() as reader:
        async for frame in follow(reader, process, 0, to_end=True, limit=5):
            found.append(frame.kind)
            beats = found.count(Kind.HEARTBEAT)
            if beats == 1 and Kind.STDOUT not in found:
                log.add(output(0, b"a"))
            elif beats == 2:
                process.record = record(status=Status.COMPLETED, exit_code=0, size=1)
                process.done.set()
    assert found == [
        Kind.STARTED, Kind.HEARTBEAT, Kind.STDOUT, Kind.HEARTBEAT, Kind.EXITED,
    ]  # fmt: skip


async def test_waiting_for_the_end_has_a_limit() -> None:
    process = Process(record())
    assert not await process.wait(0.01)
    process.done.set()
    assert await process.wait(0)
    assert await Process(record(status=Status.FAILED)).wait(0)
