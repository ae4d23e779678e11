import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable

import pytest

import atoll
from atoll.sdk._async.closable import ClosableStream


async def numbers(ended: list[bool]) -> AsyncGenerator[int, None]:
    try:
        for number in range(3):
            yield number
    finally:
        ended.append(True)


async def test_a_stream_is_read_to_its_end() -> None:
    assert [number async for number in ClosableStream(numbers([]))] == [0, 1, 2]


async def test_leaving_the_block_ends_it_where_it_is() -> None:
    ended: list[bool] = []
    async with ClosableStream(numbers(ended)) as stream:
        assert await anext(stream) == 0
        assert ended == []
    assert ended == [True]


async def test_closing_twice_is_no_mistake() -> None:
    ended: list[bool] = []
    stream = ClosableStream(numbers(ended))
    await anext(stream)
    await stream.aclose()
    await stream.aclose()
    assert ended == [True]


async def test_a_stream_that_is_dropped_is_closed() -> None:
    ended: list[bool] = []
    stream = ClosableStream(numbers(ended))
    await anext(stream)
    del stream
    for _ in range(3):
        await asyncio.sleep(0)
    assert ended == [True]


@pytest.mark.parametrize(
    "opened",
    [
        lambda box: box.exec_stream("true"),
        lambda box: box.run_code_stream("1"),
        lambda box: box.stream_process_logs("job"),
        lambda box: box.read_file_stream("/etc/passwd"),
        lambda box: box.watch("/tmp"),
        lambda box: box.events(follow=True),
    ],
    ids=["exec", "code", "logs", "file", "watch", "events"],
)
async def test_what_is_read_from_does_not_hold_the_stream(
    sandbox: atoll.Sandbox, opened: Callable[[atoll.Sandbox], object]
) -> None:
    stream = opened(sandbox)
    seen = weakref.ref(stream)
    del stream
    assert seen() is None
