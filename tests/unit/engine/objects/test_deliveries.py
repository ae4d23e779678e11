import asyncio
from typing import Any

import msgspec
import pytest

from atoll.engine.objects.deliveries import Attachment, Deliveries, LostError, lost
from atoll.errors import (
    MethodFailedError,
    OperationInterruptedError,
    OperationNotFoundError,
    TimeoutError,
    WorkerUnavailableError,
)
from atoll.wire.objects import Answer, AttachWorker, Cancel, Delivery, Superseded, WorkerEvent

ASK = Delivery(call="", key="", kind="method", namespace="N", id="box", method="f")


async def event(attachment: Attachment) -> WorkerEvent:
    async with asyncio.timeout(5):
        return await anext(attachment.events())


async def delivery(attachment: Attachment) -> Delivery:
    found = await event(attachment)
    assert isinstance(found, Delivery)
    return found


@pytest.fixture
def deliveries() -> Deliveries:
    return Deliveries(0.05)


async def test_an_answer_is_the_value_of_the_call(deliveries: Deliveries) -> None:
    worker = deliveries.attach("p", AttachWorker())
    call = asyncio.create_task(deliveries.call("p", ASK, 5, ("outer",)))
    asked = await delivery(worker)
    assert asked.calls == ["outer", asked.call]
    assert not deliveries.is_in_hook((asked.call,), ("N", "box"))
    deliveries.answer("p", asked.call, Answer(value=[1]))
    assert await call == [1]
    with pytest.raises(OperationNotFoundError):
        deliveries.answer("p", asked.call, Answer(value=[1]))


async def test_what_the_worker_raised_is_raised(deliveries: Deliveries) -> None:
    worker = deliveries.attach("p", AttachWorker())
    call = asyncio.create_task(deliveries.call("p", ASK, 5))
    asked = await delivery(worker)
    deliveries.answer("p", asked.call, Answer(error=MethodFailedError("boom").to_wire()))
    with pytest.raises(MethodFailedError, match="boom"):
        await call


async def test_requests_that_nobody_waits_for_do_not_wait_for_a_worker(
    deliveries: Deliveries,
) -> None:
    """A sandbox can send them, bodies and all, faster than a busy Worker reads."""
    worker = deliveries.attach("p", AttachWorker())
    asking = msgspec.structs.replace(ASK, kind="outbound")
    calls = [asyncio.create_task(deliveries.call("p", asking, 5)) for _ in range(3)]
    first = await delivery(worker)
    for call in calls[:2]:
        call.cancel()
    await asyncio.wait(calls[:2])
    last = await delivery(worker)
    assert await event(worker) == Cancel(call=first.call)
    deliveries.answer("p", last.call, Answer(value=3))
    assert await calls[2] == 3


async def test_a_method_is_done_though_its_caller_went_away(deliveries: Deliveries) -> None:
    worker = deliveries.attach("p", AttachWorker())
    call = asyncio.create_task(deliveries.call("p", ASK, 5))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    assert (await delivery(worker)).method == "f"


async def test_a_call_of_another_project_cannot_be_answered(deliveries: Deliveries) -> None:
    worker = deliveries.attach("p", AttachWorker())
    call = asyncio.create_task(deliveries.call("p", ASK, 5))
    asked = await delivery(worker)
    with pytest.raises(OperationNotFoundError):
        deliveries.answer("q", asked.call, Answer())
    deliveries.answer("p", asked.call, Answer())
    await call


async def test_nobody_there_is_a_typed_error_after_the_grace(deliveries: Deliveries) -> None:
    with pytest.raises(WorkerUnavailableError):
        await deliveries.call("p", ASK, 5)


async def test_a_worker_that_comes_in_time_gets_the_call() -> None:
    deliveries = Deliveries(5)
    call = asyncio.create_task(deliveries.call("p", ASK, 5))
    await asyncio.sleep(0)
    worker = deliveries.attach("p", AttachWorker())
    deliveries.answer("p", (await delivery(worker)).call, Answer(value=1))
    assert await call == 1


async def test_a_silent_worker_is_a_timeout_and_is_told_to_give_up(deliveries: Deliveries) -> None:
    worker = deliveries.attach("p", AttachWorker())
    call = asyncio.create_task(deliveries.call("p", ASK, 0.01))
    asked = await delivery(worker)
    with pytest.raises(TimeoutError, match="f of N/box"):
        await call
    assert not deliveries.responsive("p")
    assert await event(worker) == Cancel(call=asked.call)


async def test_what_timed_out_before_the_worker_took_it_is_not_done(deliveries: Deliveries) -> None:
    worker = deliveries.attach("p", AttachWorker())
    with pytest.raises(TimeoutError):
        await deliveries.call("p", ASK, 0.01)
    worker.tell(Superseded())
    assert isinstance(await event(worker), Superseded)


async def test_a_timeout_that_the_method_raised_is_its_own(deliveries: Deliveries) -> None:
    worker = deliveries.attach("p", AttachWorker())
    call = asyncio.create_task(deliveries.call("p", ASK, 5))
    answer = Answer(error=TimeoutError("its own").to_wire())
    deliveries.answer("p", (await delivery(worker)).call, answer)
    with pytest.raises(TimeoutError, match="its own"):
        await call
    assert deliveries.responsive("p")


async def test_a_worker_that_is_gone_loses_its_calls(deliveries: Deliveries) -> None:
    worker = deliveries.attach("p", AttachWorker())
    call = asyncio.create_task(deliveries.call("p", ASK, 5))
    await delivery(worker)
    deliveries.detach("p", worker)
    with pytest.raises(LostError):
        await call
    assert isinstance(lost("f"), OperationInterruptedError)


async def test_a_stream_that_broke_loses_nothing_that_is_still_worked_on() -> None:
    deliveries = Deliveries(5)
    worker = deliveries.attach("p", AttachWorker())
    kept = asyncio.create_task(deliveries.call("p", ASK, 5))
    asked = await delivery(worker)
    dropped = asyncio.create_task(deliveries.call("p", ASK, 5))
    await delivery(worker)
    deliveries.detach("p", worker)
    deliveries.attach("p", AttachWorker(running=[asked.call]))
    with pytest.raises(LostError):
        await dropped
    deliveries.answer("p", asked.call, Answer(value="done"))
    assert await kept == "done"
    deliveries.close()


async def test_the_last_process_to_attach_is_the_one(deliveries: Deliveries) -> None:
    old = deliveries.attach("p", AttachWorker())
    new = deliveries.attach("p", AttachWorker())
    assert await event(old) == Superseded()
    deliveries.detach("p", old)
    assert deliveries.attached("p")
    call: asyncio.Task[Any] = asyncio.create_task(deliveries.call("p", ASK, 5))
    deliveries.answer("p", (await delivery(new)).call, Answer())
    await call
    deliveries.close()


async def test_what_a_hook_asks_for_is_known_as_such(deliveries: Deliveries) -> None:
    worker = deliveries.attach("p", AttachWorker())
    hook = Delivery(call="", key="", kind="hook", namespace="N", id="box", method="on_start")
    call = asyncio.create_task(deliveries.call("p", hook, 5))
    asked = await delivery(worker)
    assert deliveries.is_in_hook(("outer", asked.call), ("N", "box"))
    assert not deliveries.is_in_hook((asked.call,), ("N", "other"))
    deliveries.answer("p", asked.call, Answer())
    await call
    assert not deliveries.is_in_hook((asked.call,), ("N", "box"))
