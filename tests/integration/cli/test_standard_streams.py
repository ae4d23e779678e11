"""Our own standard streams: read and written without blocking the loop or our own end."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from atoll.cli import standard_streams
from atoll.errors import OperationNotFoundError


class Input:
    """Standard input of a command, as a list."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.closed = False

    async def write(self, data: bytes) -> None:
        self.got.append(data)

    async def close(self) -> None:
        self.closed = True


async def output(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def test_everything_is_written_also_into_a_slow_pipe() -> None:
    reader, writer = os.pipe()
    data = os.urandom(500_000)

    def read() -> bytes:
        with os.fdopen(reader, "rb") as file:
            return file.read()

    reading = asyncio.create_task(asyncio.to_thread(read))
    await standard_streams.copy(output(data[:300_000], data[300_000:]), writer)
    os.close(writer)
    assert await reading == data


async def test_a_reader_that_is_gone_is_a_broken_pipe() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        await standard_streams.copy(output(b"x"), writer)
    os.close(writer)


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Put a pipe in the place of our standard input; its other end."""
    reader, writer = os.pipe()
    real = standard_streams._pieces
    monkeypatch.setattr(standard_streams, "_pieces", lambda _: real(reader))
    yield writer
    os.close(reader)


async def test_input_is_passed_on_as_it_comes_and_its_end_too(stdin: int) -> None:
    target = Input()
    feeding = asyncio.create_task(standard_streams.feed(target))
    os.write(stdin, b"one")
    await asyncio.sleep(0.1)
    assert target.got == [b"one"]
    os.write(stdin, b"two")
    os.close(stdin)
    await feeding
    assert (b"".join(target.got), target.closed) == (b"onetwo", True)


async def test_waiting_for_input_can_be_given_up(stdin: int) -> None:
    feeding = asyncio.create_task(standard_streams.feed(Input()))
    await asyncio.sleep(0.05)
    feeding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await feeding
    os.close(stdin)


async def test_a_command_that_ends_first_is_no_error(stdin: int) -> None:
    class Ended(Input):
        async def write(self, data: bytes) -> None:
            raise OperationNotFoundError("over")

    os.write(stdin, b"x")
    await standard_streams.feed(Ended())
    os.close(stdin)


async def test_a_regular_file_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(b"x" * 100_000)
    descriptor = os.open(tmp_path / "f", os.O_RDONLY)
    real = standard_streams._pieces
    monkeypatch.setattr(standard_streams, "_pieces", lambda _: real(descriptor))
    target = Input()
    await standard_streams.feed(target)
    os.close(descriptor)
    assert len(b"".join(target.got)) == 100_000
