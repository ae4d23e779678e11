from collections.abc import AsyncGenerator

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
