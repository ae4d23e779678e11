import asyncio
import gc
import weakref
from functools import partial
from typing import Any

import pytest

from atoll.errors import FileNotFoundError, IdempotencyConflictError, MaxInstancesExceededError
from atoll.server import replays
from atoll.server.replays import Replays, fingerprint


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
    found, work = Replays(), Work(b"1", b"2")
    both = await asyncio.gather(found.once("k", b"f", work), found.once("k", b"f", work))
    assert [*both, await found.once("k", b"f", work)] == [b"1", b"1", b"1"]
    assert work.done == 1
    assert await found.once("other", b"f", work) == b"2"


async def test_another_request_with_the_same_key_is_refused() -> None:
    found, work = Replays(), Work(b"1", b"2")
    await found.once("k", b"f", work)
    with pytest.raises(IdempotencyConflictError):
        await found.once("k", b"g", work)
    assert work.done == 1


async def test_the_work_goes_on_when_its_caller_leaves() -> None:
    found, work = Replays(), Work(b"1")
    first = asyncio.create_task(found.once("k", b"f", work))
    await asyncio.sleep(0)
    first.cancel()
    assert await found.once("k", b"f", work) == b"1"
    assert work.done == 1


async def test_an_error_that_may_go_away_is_tried_again() -> None:
    found, work = Replays(), Work(MaxInstancesExceededError(), RuntimeError(), b"1")
    for kind in (MaxInstancesExceededError, RuntimeError):
        with pytest.raises(kind):
            await found.once("k", b"f", work)
    assert await found.once("k", b"f", work) == b"1"


async def test_an_error_that_stays_is_the_answer() -> None:
    found, work = Replays(), Work(FileNotFoundError(), b"1")
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            await found.once("k", b"f", work)
    assert work.done == 1


async def test_answers_are_forgotten_by_age_and_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    found, work = Replays(lambda: now), Work(b"1", b"2", b"3")
    assert await found.once("k", b"f", work) == b"1"
    now = replays.KEEP + 1
    assert await found.once("k", b"f", work) == b"2"
    monkeypatch.setattr(replays, "KEEP_COUNT", 1)
    assert await found.once("k", b"f", work) == b"3"


async def test_answers_are_forgotten_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "KEEP_BYTES", 5)
    found, work = Replays(), Work(b"old", b"new", b"again")
    await found.once("k", b"f", work)
    await found.once("l", b"f", work)
    assert await found.once("l", b"f", work) == b"new"
    assert await found.once("k", b"f", work) == b"again"


async def test_a_kept_error_holds_nothing_of_its_request() -> None:
    """Its traceback would hold the frames, and those the body."""

    class Body:
        pass

    body, found = Body(), Replays()
    gone = weakref.ref(body)

    async def work(body: Body) -> bytes:
        raise FileNotFoundError("no such file")

    with pytest.raises(FileNotFoundError):
        await found.once("k", b"f", partial(work, body))
    del body
    await asyncio.sleep(0)
    gc.collect()
    assert gone() is None
    with pytest.raises(FileNotFoundError, match="no such file"):
        await found.once("k", b"f", partial(work, Body()))


def test_a_fingerprint_is_small_and_knows_where_its_parts_end() -> None:
    assert len(fingerprint(b"x" * 1_000_000)) == 32
    assert fingerprint(b"ab", b"c") != fingerprint(b"a", b"bc")
