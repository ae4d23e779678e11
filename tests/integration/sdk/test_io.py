"""What the blocking SDK does outside of itself; starting and finding the private engine."""

import io
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll.sdk import _io


@pytest.mark.parametrize(
    "source",
    [
        lambda: io.BytesIO("aü".encode()),
        lambda: io.StringIO("aü"),
        lambda: ["a", b"", "ü".encode()],
    ],
)
def test_content_of_every_kind_becomes_bytes(source: Any) -> None:
    assert b"".join(_io.pieces(source())) == "aü".encode()


def test_a_pump_gives_each_value_to_one_reader_of_several_threads() -> None:
    taken: list[int] = []
    pump = _io.Pump((number for number in range(500)), taken.append)

    def read() -> None:
        while not pump.done:
            pump.advance(lambda: False)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken == list(range(500))


def test_a_pump_takes_nothing_when_there_is_enough_or_it_was_closed() -> None:
    taken: list[int] = []
    pump = _io.Pump((number for number in range(5)), taken.append)
    pump.advance(lambda: True)
    assert taken == []
    pump.close()
    pump.advance(lambda: False)
    assert (taken, pump.done) == ([], True)


def test_an_error_of_the_stream_reaches_the_reader_and_ends_it() -> None:
    def broken() -> Any:
        raise ZeroDivisionError
        yield 1

    pump = _io.Pump[int](broken(), lambda _: None)
    with pytest.raises(ZeroDivisionError):
        pump.advance(lambda: False)
    assert pump.done


def test_small_things_do_what_they_say() -> None:
    seen: list[object] = []
    _io.call(seen.append, 1)
    _io.call(None, 2)
    _io.finish(lambda: seen.append(3), 1)
    assert seen == [1, 3]
    assert _io.scope() == os.getpid()
    assert 0 <= _io.jitter() < 1
    assert _io.in_thread(max, 1, 2) == 2
    assert _io.environment()["PATH"]


@pytest.fixture
def lease(tmp_path: Path) -> Iterator[tuple[Path, list[bytes]]]:
    """A lease socket that answers each client with the next line of a list."""
    folder = tmp_path / ("long" * 30)  # over the 107 bytes that the address of a socket has
    folder.mkdir()
    listener, lines = socket.socket(socket.AF_UNIX), list[bytes]()
    directory = os.open(folder, os.O_PATH)
    listener.bind(f"/proc/self/fd/{directory}/lease.sock")
    os.close(directory)
    listener.listen()

    def serve() -> None:
        while lines:
            connection, _ = listener.accept()
            connection.sendall(lines.pop(0))
            connection.close()

    lines.append(b'{"socket": "/x"}\n')
    thread = threading.Thread(target=serve)
    thread.start()
    yield folder / "lease.sock", lines
    thread.join()
    listener.close()


def test_a_lease_is_a_connection_with_a_line(lease: tuple[Path, list[bytes]]) -> None:
    taken = _io.take_lease(lease[0], 5)
    assert taken is not None
    connection, hello = taken
    connection.close()
    assert hello == {"socket": "/x"}


def test_an_engine_that_is_on_its_way_out_gives_no_lease(lease: tuple[Path, list[bytes]]) -> None:
    lease[1].insert(0, b'{"cut')
    assert _io.take_lease(lease[0], 5) is None
    second = _io.take_lease(lease[0], 5)
    assert second is not None
    second[0].close()


def test_where_there_is_no_engine_there_is_no_lease(tmp_path: Path) -> None:
    assert _io.take_lease(tmp_path / "lease.sock", 5) is None
    assert _io.take_lease(tmp_path / "no" / "lease.sock", 5) is None


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of ``python -m atoll.cli.main``."""
    path = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(path))
    return path


def test_an_engine_that_is_started_tells_when_it_is_ready(program: Path, tmp_path: Path) -> None:
    program.write_text('#!/bin/bash\necho to the log\necho "{\\"a\\": \\"$*\\"}" >&${!#}\n')
    program.chmod(0o755)
    hello = _io.start_engine(["--local"], tmp_path / "log")
    words = str(hello["a"]).split()
    assert words[:4] == ["-m", "atoll.cli.main", "serve", "--local"]
    assert words[4] == "--ready-fd"
    assert (tmp_path / "log").read_text() == "to the log\n"


def test_an_engine_that_dies_gives_no_line(program: Path, tmp_path: Path) -> None:
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    assert _io.start_engine([], tmp_path / "log") == {}


def test_a_program_that_cannot_be_started_leaves_no_descriptor(
    program: Path, tmp_path: Path
) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        _io.start_engine([], tmp_path / "log")
    assert json.dumps(sorted(os.listdir("/proc/self/fd"))) == json.dumps(before)
