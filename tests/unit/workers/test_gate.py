import asyncio
import contextvars

import pytest

from atoll.errors import DeadlockError
from atoll.sdk import _calls
from atoll.workers.gate import Gate


async def test_nothing_passes_while_it_is_held_and_everything_after() -> None:
    gate, seen = Gate("box"), list[str]()

    async def passing() -> None:
        await gate.pass_through()
        seen.append("passed")

    outside = contextvars.copy_context()
    async with gate.held():
        task = asyncio.create_task(passing(), context=outside)
        await asyncio.sleep(0.01)
        await gate.pass_through()  # who holds it passes
        seen.append("held")
    await task
    assert seen == ["held", "passed"]


async def test_holders_come_one_after_the_other_and_may_hold_it_twice() -> None:
    gate, inside = Gate("box"), 0

    async def hold() -> None:
        nonlocal inside
        async with gate.held(), gate.held():
            inside += 1
            await asyncio.sleep(0.001)
            assert inside == 1
            inside -= 1

    await asyncio.gather(*(hold() for _ in range(5)))
    assert not gate.closed


async def test_a_call_that_the_holder_waits_for_is_refused() -> None:
    gate = Gate("box")

    async def called() -> None:
        _calls.waiting.set(("outer", "inner"))
        await gate.pass_through()

    async def outer() -> None:
        _calls.waiting.set(("outer",))
        async with gate.held():
            with pytest.raises(DeadlockError, match="box"):
                await asyncio.create_task(called_from_elsewhere())

    async def called_from_elsewhere() -> None:
        await asyncio.get_running_loop().create_task(called(), context=contextvars.Context())

    await asyncio.create_task(outer())


async def test_a_holder_nobody_waits_for_any_more_holds_nothing() -> None:
    gate, held = Gate("box"), asyncio.Event()

    async def stubborn() -> None:
        _calls.waiting.set(("c",))
        async with gate.held():
            held.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(stubborn())
    await held.wait()
    gate.force_open("other")
    assert gate.closed
    gate.force_open("c")
    await gate.pass_through()
    task.cancel()
    await asyncio.wait([task])
