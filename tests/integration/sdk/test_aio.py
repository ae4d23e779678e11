"""What the asynchronous SDK does outside of itself."""

import asyncio
import io
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from atoll.sdk import _aio


async def gather(source: AsyncIterator[bytes]) -> list[bytes]:
    return [piece async for piece in source]


class AsyncFile:
    """What libraries for asynchronous files give."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    async def read(self, size: int) -> bytes:
        return self._data.read(size)


async def asynchronous(*pieces: bytes | str) -> AsyncIterator[bytes | str]:
    for piece in pieces:
        yield piece


@pytest.mark.parametrize(
    "source",
    [
        lambda: io.BytesIO("aü".encode()),
        lambda: io.StringIO("aü"),
        lambda: ["a", "ü".encode()],
        lambda: iter([bytearray(b"a"), memoryview("ü".encode())]),
        lambda: asynchronous("a", "ü".encode()),
        lambda: AsyncFile("aü".encode()),
    ],
)
async def test_content_of_every_kind_becomes_bytes(source: Any) -> None:
    assert b"".join(await gather(_aio.pieces(source()))) == "aü".encode()


async def test_an_empty_piece_does_not_end_an_iterable() -> None:
    assert b"".join(await gather(_aio.pieces(iter([b"a", b"", b"b"])))) == b"ab"


async def test_a_slow_file_does_not_block_the_loop() -> None:
    def slow() -> Any:
        time.sleep(0.3)
        yield b"x"

    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await gather(_aio.pieces(slow()))
    ticking.cancel()
    assert ticks > 5


async def test_work_that_must_be_finished_survives_a_second_cancel() -> None:
    done = asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0.1)
        done.set()

    task = asyncio.create_task(_aio.finish(work, 5))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(done.wait(), 1)


async def test_work_that_takes_too_long_is_left_in_the_background() -> None:
    start = time.monotonic()
    await _aio.finish(lambda: asyncio.sleep(0.5), 0.05)
    assert time.monotonic() - start < 0.4
    await asyncio.sleep(0.5)


async def test_errors_of_that_work_hide_no_other_error() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    await _aio.finish(work, 1)


async def test_callbacks_may_be_functions_or_coroutine_functions() -> None:
    seen: list[object] = []

    async def slowly(*values: object) -> None:
        await asyncio.sleep(0)
        seen.extend(values)

    await _aio.call(seen.append, 1)
    await _aio.call(slowly, 2, 3)
    await _aio.call(None, 4)
    assert seen == [1, 2, 3]


async def numbers(stop: int) -> Any:
    for number in range(stop):
        await asyncio.sleep(0.02)
        yield number


async def test_a_reader_that_is_cancelled_loses_no_value() -> None:
    taken: list[int] = []
    pump = _aio.Pump(numbers(3), taken.append)
    reader = asyncio.create_task(pump.advance(lambda: False))
    await asyncio.sleep(0.005)
    reader.cancel()
    while not pump.done:
        await pump.advance(lambda: False)
    assert taken == [0, 1, 2]


async def test_two_readers_wait_for_the_same_value() -> None:
    taken: list[int] = []
    pump = _aio.Pump(numbers(3), taken.append)
    await asyncio.gather(*(pump.advance(lambda: bool(taken)) for _ in range(5)))
    assert taken == [0]
    await pump.aclose()
    assert pump.done
    await pump.advance(lambda: False)
    assert taken == [0]


async def test_closing_interrupts_a_reader() -> None:
    async def never() -> Any:
        await asyncio.sleep(60)
        yield 1

    pump = _aio.Pump[int](never(), lambda _: None)
    reader = asyncio.create_task(pump.advance(lambda: False))
    await asyncio.sleep(0.01)
    await pump.aclose()
    with pytest.raises(asyncio.CancelledError):
        await reader


async def test_an_error_of_the_stream_reaches_the_reader_and_ends_it() -> None:
    async def broken() -> Any:
        raise ZeroDivisionError
        yield 1

    pump = _aio.Pump[int](broken(), lambda _: None)
    with pytest.raises(ZeroDivisionError):
        await pump.advance(lambda: False)
    assert pump.done


async def test_blocking_work_runs_in_a_thread() -> None:
    import threading

    assert await _aio.in_thread(threading.get_ident) != threading.get_ident()
