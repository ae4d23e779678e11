import asyncio

import pytest

from atoll.engine.capacity import admission as module
from atoll.engine.capacity.admission import Admission
from atoll.engine.capacity.node import START_MEMORY, Free
from atoll.errors import ContainerUnavailableError, MaxInstancesExceededError

PLENTY = Free(1 << 40, 1 << 20, 1 << 40)
NOTHING = Free(0, 0, 0)


class Node:
    """What is left, as a test says."""

    def __init__(self, free: Free = PLENTY) -> None:
        self.free = free

    def __call__(self) -> Free:
        return self.free


def places(count: int) -> Admission:
    return Admission(count, NOTHING, Node())


async def test_a_full_namespace_refuses_and_says_when_to_try_again() -> None:
    admission = places(10)
    await admission.enter("a", 1)
    with pytest.raises(MaxInstancesExceededError) as caught:
        await admission.enter("a", 1)
    assert caught.value.retry_after
    assert caught.value.context["max_instances"] == 1
    await admission.enter("b", 1)


async def test_the_node_has_a_limit_of_its_own() -> None:
    admission = places(1)
    admission.adopt("a")
    with pytest.raises(MaxInstancesExceededError, match="this node"):
        await admission.enter("b", None)


async def test_a_place_given_back_is_free_again() -> None:
    admission = places(1)
    await admission.enter("a", None)
    admission.leave("a")
    await admission.enter("a", None)


async def test_a_queued_caller_gets_the_next_place() -> None:
    admission = places(1)
    await admission.enter("a", None)
    waiting = asyncio.create_task(admission.enter("a", None, wait=5))
    await asyncio.sleep(0)
    assert not waiting.done()
    admission.leave("a")
    await waiting
    with pytest.raises(MaxInstancesExceededError):
        await admission.enter("a", None)


async def test_a_queued_caller_is_refused_when_its_time_is_over() -> None:
    admission = places(1)
    await admission.enter("a", None)
    with pytest.raises(MaxInstancesExceededError):
        await admission.enter("a", None, wait=0.01)


@pytest.mark.parametrize("resource", Free._fields)
async def test_a_node_that_lacks_something_refuses_with_a_retryable_error(resource: str) -> None:
    node = Node(PLENTY._replace(**{resource: 10}))
    admission = Admission(10, Free(11, 11, 11), node)
    with pytest.raises(ContainerUnavailableError) as caught:
        await admission.enter("a", None, new=True)
    error = caught.value
    assert (error.context["reason"], error.context["resource"]) == ("capacity", resource)
    assert error.retryable
    assert error.retry_after
    node.free = PLENTY
    await admission.enter("a", None, new=True)


async def test_starts_under_way_count_for_the_memory_they_will_take() -> None:
    """The kernel does not know of them yet: fifty at once would all see the same free memory."""
    admission = Admission(10, NOTHING, Node(PLENTY._replace(memory=2 * START_MEMORY)))
    await admission.enter("a", None)
    await admission.enter("a", None)
    with pytest.raises(ContainerUnavailableError):
        await admission.enter("a", None)
    admission.started()
    await admission.enter("a", None)


async def test_who_waits_for_memory_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_AGAIN", 0.01)
    node = Node(NOTHING)
    admission = Admission(10, NOTHING, node)
    waiting = asyncio.create_task(admission.enter("a", None, wait=5))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    node.free = PLENTY
    await waiting
