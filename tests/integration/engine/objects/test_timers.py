import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from atoll.engine.objects.deliveries import LostError
from atoll.engine.objects.timers import FIRST_PAUSE, RETRIES, Timer, Timers
from atoll.engine.store.store import Store
from atoll.errors import InvalidConfigError, MethodFailedError, SandboxError, WorkerUnavailableError
from integration.engine.objects.worker import until

START = datetime(2024, 1, 1, 12, tzinfo=UTC).timestamp()
BOX = ("N", "box")


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


class Fired:
    """What was fired; fails as the test says."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []
        self.given_up: list[Timer] = []
        self.failures: list[Exception] = []
        self.hold: asyncio.Event | None = None

    async def fire(self, timer: Timer) -> None:
        self.timers.append(timer)
        if self.hold:
            await self.hold.wait()
        if self.failures:
            raise self.failures.pop(0)

    async def failed(self, timer: Timer, _: SandboxError) -> None:
        self.given_up.append(timer)

    @property
    def payloads(self) -> list[Any]:
        return [timer.payload for timer in self.timers]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store(tmp_path / "atoll.db").open()
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fired() -> Fired:
    return Fired()


@pytest.fixture
async def timers(store: Store, clock: Clock, fired: Fired) -> AsyncIterator[Timers]:
    made = Timers(store, fired.fire, fired.failed, clock)
    made.open()
    yield made
    await made.close()


async def settle(timers: Timers) -> None:
    timers.look()
    await asyncio.sleep(0.05)
    await until(lambda: not timers._busy)


async def test_timers_of_one_object_fire_in_order_and_not_before(
    timers: Timers, clock: Clock, fired: Fired
) -> None:
    for payload, due in (("c", 30), ("a", 10), ("d", 30), ("b", 20)):
        await timers.add(BOX, "f", payload, START + due)
    clock.now += 9
    await settle(timers)
    assert fired.payloads == []
    clock.now += 100
    await settle(timers)
    assert fired.payloads == ["a", "b", "c", "d"]
    assert await timers.of(BOX) == []


async def test_what_was_due_while_nobody_was_there_fires_at_the_next_start(
    store: Store, clock: Clock, fired: Fired
) -> None:
    first = Timers(store, fired.fire, fired.failed, clock)
    await first.add(BOX, "f", "x", START + 10)
    clock.now += 1_000
    second = Timers(store, fired.fire, fired.failed, clock)
    second.open()
    await until(lambda: fired.payloads == ["x"])
    await second.close()


async def test_an_engine_that_ends_before_the_answer_fires_again(
    store: Store, clock: Clock, fired: Fired
) -> None:
    fired.hold = asyncio.Event()
    first = Timers(store, fired.fire, fired.failed, clock)
    await first.add(BOX, "f", "x", START)
    first.open()
    await until(lambda: fired.timers)
    await first.close()
    fired.hold = None
    second = Timers(store, fired.fire, fired.failed, clock)
    second.open()
    await until(lambda: fired.payloads == ["x", "x"])
    await second.close()
    assert fired.timers[0].uid == fired.timers[1].uid


async def test_a_slow_object_does_not_hold_up_others(
    timers: Timers, clock: Clock, fired: Fired
) -> None:
    fired.hold = asyncio.Event()
    await timers.add(BOX, "f", "slow", START)
    await until(lambda: fired.payloads == ["slow"])
    await timers.add(("N", "other"), "f", "quick", START)
    await until(lambda: fired.payloads == ["slow", "quick"])
    fired.hold.set()


async def test_a_call_that_raises_is_tried_again_and_given_up_in_the_end(
    timers: Timers, clock: Clock, fired: Fired
) -> None:
    fired.failures = [MethodFailedError("boom") for _ in range(RETRIES + 1)]
    await timers.add(BOX, "f", "x", START)
    await until(lambda: fired.timers)
    pause = FIRST_PAUSE
    for attempt in range(1, RETRIES + 1):
        await settle(timers)
        assert len(fired.timers) == attempt
        clock.now += pause
        await settle(timers)
        assert fired.timers[-1].attempts == attempt
        pause *= 2
    assert [timer.payload for timer in fired.given_up] == ["x"]
    assert await timers.of(BOX) == []


async def test_a_worker_that_is_away_costs_no_attempt(
    timers: Timers, clock: Clock, fired: Fired
) -> None:
    fired.failures = [WorkerUnavailableError("away"), LostError()]
    await timers.add(BOX, "f", "x", START)
    await until(lambda: len(fired.timers) == 1)
    clock.now += 1_000
    await asyncio.sleep(0.05)
    assert len(fired.timers) == 1
    await settle(timers)  # the worker attached
    await until(lambda: len(fired.timers) == 3)
    await settle(timers)
    assert fired.timers[-1].attempts == 0
    assert await timers.of(BOX) == []


async def test_one_alarm_is_set_at_a_time(timers: Timers, clock: Clock, fired: Fired) -> None:
    await timers.set_alarm(BOX, START + 10)
    await timers.set_alarm(BOX, START + 20)
    found = await timers.alarm(BOX)
    assert found
    assert found.time == datetime.fromtimestamp(START + 20, UTC)
    clock.now += 15
    await settle(timers)
    assert fired.timers == []
    clock.now += 15
    await settle(timers)
    assert [timer.method for timer in fired.timers] == ["alarm"]
    assert await timers.alarm(BOX) is None


async def test_an_alarm_that_sets_the_next_one_keeps_it(
    timers: Timers, clock: Clock, fired: Fired
) -> None:
    fired.hold = asyncio.Event()
    await timers.set_alarm(BOX, START)
    await until(lambda: fired.timers)
    assert await timers.alarm(BOX) is None  # it is being called
    await timers.set_alarm(BOX, START + 60)
    fired.hold.set()
    await settle(timers)
    found = await timers.alarm(BOX)
    assert found
    assert found.due == START + 60
    await timers.delete_alarm(BOX)
    assert await timers.alarm(BOX) is None


async def test_a_schedule_can_be_taken_back(timers: Timers, clock: Clock, fired: Fired) -> None:
    kept = await timers.add(BOX, "f", "kept", START + 10)
    gone = await timers.add(BOX, "f", "gone", START + 10)
    assert await timers.cancel(BOX, gone.uid)
    assert not await timers.cancel(BOX, gone.uid)
    assert not await timers.cancel(("N", "other"), kept.uid)
    clock.now += 20
    await settle(timers)
    assert fired.payloads == ["kept"]


async def test_a_cron_fires_at_its_minutes_and_missed_ones_once(
    timers: Timers, clock: Clock, fired: Fired
) -> None:
    await timers.set_crons("p", ["*/5 * * * *", "0 0 1 1 *"])
    clock.now += 299
    await settle(timers)
    assert fired.timers == []
    clock.now += 1
    await settle(timers)
    assert [timer.time.minute for timer in fired.timers] == [5]
    clock.now += timedelta(hours=3).total_seconds()
    await settle(timers)
    assert len(fired.timers) == 2
    await timers.set_crons("p", ["*/5 * * * *"])
    clock.now += 300
    await settle(timers)
    assert len(fired.timers) == 3


async def test_a_cron_that_fails_waits_for_its_next_time(
    timers: Timers, clock: Clock, fired: Fired
) -> None:
    fired.failures = [MethodFailedError("boom")]
    await timers.set_crons("p", ["* * * * *"])
    clock.now += 60
    await settle(timers)
    clock.now += FIRST_PAUSE
    await settle(timers)
    assert len(fired.timers) == 1
    clock.now += 60
    await settle(timers)
    assert len(fired.timers) == 2


async def test_a_wrong_cron_changes_nothing(timers: Timers, store: Store) -> None:
    await timers.set_crons("p", ["* * * * *"])
    with pytest.raises(InvalidConfigError):
        await timers.set_crons("p", ["x"])
    assert len(await store.read("SELECT 1 FROM timers", ())) == 1


async def test_a_fault_of_the_engine_fires_again_and_parks_nobody(
    timers: Timers, clock: Clock, fired: Fired, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atoll.engine.objects.timers.FAULT_PAUSE", 0.01)
    fired.failures = [OSError("disk")]
    await timers.add(BOX, "f", "x", START)
    await until(lambda: fired.payloads == ["x", "x"])
