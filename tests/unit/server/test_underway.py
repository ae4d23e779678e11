import asyncio

import pytest

from atoll.errors import ContainerNotReadyError, OperationInterruptedError
from atoll.server.auth import Caller
from atoll.server.underway import Call, Underway
from atoll.wire import ops
from atoll.wire.keys import Scope
from unit.server.calling import call


async def work(under_way: Underway, one: Call, seconds: float = 60.0) -> str:
    with under_way.entered(one):
        await asyncio.sleep(seconds)
        return "done"


def begun(*, resumable: bool, caller: str = "k") -> Call:
    one = call(caller=Caller(Scope.RUN, id=caller))
    one.begin(ops.EXEC, {}, resumable=resumable)
    return one


async def test_at_a_stop_a_call_ends_and_a_stream_is_cut_with_a_reason_to_try_again() -> None:
    under_way = Underway()
    calls = asyncio.create_task(work(under_way, begun(resumable=False), 1.2))
    stream = asyncio.create_task(work(under_way, begun(resumable=True)))
    await asyncio.sleep(0)
    await under_way.drain(20.0)
    assert await calls == "done"
    with pytest.raises(ContainerNotReadyError):
        await stream


async def test_a_call_that_takes_too_long_is_told_that_its_outcome_is_not_known() -> None:
    under_way = Underway()
    calls = asyncio.create_task(work(under_way, begun(resumable=False)))
    await asyncio.sleep(0)
    await under_way.drain(0.01)
    with pytest.raises(OperationInterruptedError):
        await calls


async def test_nothing_begins_once_the_engine_stops() -> None:
    under_way = Underway()
    await under_way.drain(0.0)
    with pytest.raises(ContainerNotReadyError) as refused:
        await work(under_way, begun(resumable=False))
    assert refused.value.retry_after


async def test_a_stop_without_calls_takes_no_time() -> None:
    async with asyncio.timeout(10):
        await Underway().drain(30.0)


async def test_revoking_a_key_ends_what_it_has_under_way_but_not_the_call_that_revokes() -> None:
    under_way = Underway()
    tasks = [
        asyncio.create_task(work(under_way, begun(resumable=True, caller=who))) for who in "kkx"
    ]
    await asyncio.sleep(0)
    one = begun(resumable=False)
    with under_way.entered(one):
        one.end_others("k")
        for task in tasks[:2]:
            with pytest.raises(OperationInterruptedError):
                await task
    assert not tasks[2].done()
    tasks[2].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[2]


async def test_a_cancellation_from_elsewhere_stays_one() -> None:
    task = asyncio.create_task(work(Underway(), begun(resumable=False)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_at_a_stop_a_wait_ends_at_once() -> None:
    under_way, one = Underway(), begun(resumable=False)

    async def wait() -> None:
        with under_way.entered(one), one.waiting():
            await asyncio.sleep(60)

    waits = asyncio.create_task(wait())
    await asyncio.sleep(0)
    assert one.waits
    draining = asyncio.create_task(under_way.drain(60.0))
    with pytest.raises(ContainerNotReadyError):
        await waits
    await draining
    assert not one.waits


async def test_no_wait_begins_in_a_call_under_way_once_the_engine_stops() -> None:
    under_way, one = Underway(), begun(resumable=False)
    with under_way.entered(one):
        under_way.stopping = True
        with pytest.raises(ContainerNotReadyError), one.waiting():
            pass
