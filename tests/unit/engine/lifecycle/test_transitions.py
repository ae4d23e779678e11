import asyncio

import pytest

from atoll.engine.lifecycle.transitions import Transitions
from atoll.errors import ContainerUnavailableError, SandboxDestroyedError


async def nothing() -> None:
    await asyncio.sleep(0)


async def failing() -> None:
    raise ContainerUnavailableError("no")


async def test_all_who_join_get_the_same_outcome() -> None:
    transitions = Transitions("box")
    transitions.begin("start", nothing())
    assert transitions.kind == "start"
    assert await asyncio.gather(*(transitions.settled("start") for _ in range(5))) == [True] * 5
    assert transitions.kind is None
    transitions.begin("start", failing())
    waits = (transitions.settled("start") for _ in range(5))
    outcomes = await asyncio.gather(*waits, return_exceptions=True)
    assert all(isinstance(outcome, ContainerUnavailableError) for outcome in outcomes)


async def test_who_waits_for_something_else_is_only_told_to_look_again() -> None:
    transitions = Transitions("box")
    transitions.begin("stop", failing())
    assert await transitions.settled("start") is False
    assert await transitions.settled("start") is False


async def test_a_waiter_who_leaves_does_not_end_it() -> None:
    transitions = Transitions("box")
    ended = asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0.02)
        ended.set()

    transitions.begin("start", work())
    waiter = asyncio.create_task(transitions.settled("start"))
    await asyncio.sleep(0)
    waiter.cancel()
    assert await transitions.settled("start")
    assert ended.is_set()


async def test_a_start_that_is_given_up_is_told_as_a_destroy() -> None:
    transitions = Transitions("box")
    transitions.begin("start", asyncio.sleep(30))
    asyncio.get_running_loop().call_soon(transitions.cancel)
    with pytest.raises(SandboxDestroyedError):
        await transitions.settled("start")
    transitions.cancel()


async def test_two_at_a_time_are_a_fault() -> None:
    transitions = Transitions("box")
    transitions.begin("start", nothing())
    with pytest.raises(AssertionError):
        transitions.begin("stop", nothing())
    await transitions.settled("start")
