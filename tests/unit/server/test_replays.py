import asyncio
from typing import Any

import pytest

from atoll.errors import FileNotFoundError, IdempotencyConflictError, MaxInstancesExceededError
from atoll.server import replays
from atoll.server.replays import Replays


class Work:
    """Counts how often it was done."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)
        self.done = 0

    async def __call__(self) -> Any:
        await asyncio.sleep(0.01)
        self.done += 1
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def test_the_first_answer_is_the_answer() -> None:
    found, work = Replays(), Work(1, 2)
    both = await asyncio.gather(found.once("k", "f", work), found.once("k", "f", work))
    assert [*both, await found.once("k", "f", work)] == [1, 1, 1]
    assert work.done == 1
    assert await found.once("other", "f", work) == 2


async def test_another_request_with_the_same_key_is_refused() -> None:
    found, work = Replays(), Work(1, 2)
    await found.once("k", "f", work)
    with pytest.raises(IdempotencyConflictError):
        await found.once("k", "g", work)
    assert work.done == 1


async def test_the_work_goes_on_when_its_caller_leaves() -> None:
    found, work = Replays(), Work(1)
    first = asyncio.create_task(found.once("k", "f", work))
    await asyncio.sleep(0)
    first.cancel()
    assert await found.once("k", "f", work) == 1
    assert work.done == 1


async def test_an_error_that_may_go_away_is_tried_again() -> None:
    found, work = Replays(), Work(MaxInstancesExceededError(), RuntimeError(), 1)
    for kind in (MaxInstancesExceededError, RuntimeError):
        with pytest.raises(kind):
            await found.once("k", "f", work)
    assert await found.once("k", "f", work) == 1


async def test_an_error_that_stays_is_the_answer() -> None:
    found, work = Replays(), Work(FileNotFoundError(), 1)
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            await found.once("k", "f", work)
    assert work.done == 1


async def test_answers_are_forgotten_by_age_and_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    found, work = Replays(lambda: now), Work(1, 2, 3)
    assert await found.once("k", "f", work) == 1
    now = replays.KEEP + 1
    assert await found.once("k", "f", work) == 2
    monkeypatch.setattr(replays, "KEEP_COUNT", 1)
    assert await found.once("k", "f", work) == 3
