import asyncio

import pytest

from atoll.engine.admission import Admission
from atoll.errors import MaxInstancesExceededError


async def test_a_full_namespace_refuses_and_says_when_to_try_again() -> None:
    admission = Admission(10)
    await admission.enter("a", 1)
    with pytest.raises(MaxInstancesExceededError) as caught:
        await admission.enter("a", 1)
    assert caught.value.retry_after
    assert caught.value.context["max_instances"] == 1
    await admission.enter("b", 1)


async def test_the_node_has_a_limit_of_its_own() -> None:
    admission = Admission(1)
    admission.adopt("a")
    with pytest.raises(MaxInstancesExceededError, match="this node"):
        await admission.enter("b", None)


async def test_a_place_given_back_is_free_again() -> None:
    admission = Admission(1)
    await admission.enter("a", None)
    admission.leave("a")
    await admission.enter("a", None)


async def test_a_queued_caller_gets_the_next_place() -> None:
    admission = Admission(1)
    await admission.enter("a", None)
    waiting = asyncio.create_task(admission.enter("a", None, wait=5))
    await asyncio.sleep(0)
    assert not waiting.done()
    admission.leave("a")
    await waiting
    with pytest.raises(MaxInstancesExceededError):
        await admission.enter("a", None)


async def test_a_queued_caller_is_refused_when_its_time_is_over() -> None:
    admission = Admission(1)
    await admission.enter("a", None)
    with pytest.raises(MaxInstancesExceededError):
        await admission.enter("a", None, wait=0.01)
