import asyncio

from atoll.server.cork import FULL, Corked


class Transport:
    """Remembers what was written and when it was closed."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


async def corked() -> tuple[Transport, Corked]:
    inner = Transport()
    return inner, Corked(inner, asyncio.get_running_loop())


async def test_writes_of_one_round_leave_together_and_in_order() -> None:
    inner, outer = await corked()
    for data in (b"head ", b"body ", b"end"):
        outer.write(data)
    assert inner.written == []
    await asyncio.sleep(0)
    outer.write(b"next")
    await asyncio.sleep(0)
    assert inner.written == [b"head body end", b"next"]


async def test_much_is_written_at_once_so_that_the_transport_can_hold_it_back() -> None:
    inner, outer = await corked()
    outer.write(b"head")
    outer.write(b"x" * FULL)
    assert inner.written == [b"head" + b"x" * FULL]


async def test_what_was_written_leaves_before_the_connection_ends() -> None:
    inner, outer = await corked()
    outer.write(b"last")
    outer.close()
    assert (inner.written, outer.is_closing()) == ([b"last"], True)


async def test_nothing_is_written_to_a_connection_that_is_gone() -> None:
    inner, outer = await corked()
    outer.write(b"too late")
    inner.close()
    await asyncio.sleep(0)
    assert inner.written == []
