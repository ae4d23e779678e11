import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atoll.errors import (
    FileTooLargeError,
    OperationNotFoundError,
    SandboxError,
    WorkerUnavailableError,
)
from atoll.wire.objects import Alive, Attached, Cancel, Delivery, Superseded
from atoll.workers.channel import Channel


class Engine:
    """The engine's side of the connection: what it sends, and what it was answered."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Any] = asyncio.Queue()
        self.answers: list[tuple[str, Any]] = []
        self.attached: list[Any] = []
        self.refuse: list[SandboxError] = []

    @asynccontextmanager
    async def send(self, call: Any, **_: Any) -> AsyncIterator["Engine"]:
        self.attached.append(msgspec.json.decode(call.body))
        if self.refuse:
            raise self.refuse.pop()
        yield self

    async def aiter_raw(self) -> AsyncIterator[bytes]:
        while (event := await self.events.get()) is not None:
            line = msgspec.json.encode(event) + b"\n"
            yield line[:5]
            yield line[5:]

    async def call(self, op: Any, params: dict[str, str], answer: Any) -> None:
        self.answers.append((params["call"], answer.error or answer.value))
        if params["call"] == "unknown":
            raise OperationNotFoundError
        if answer.value == "large":
            raise FileTooLargeError("more than 64 MiB")


class Objects:
    """Does what is delivered: sleeps, fails, or answers with how often it was asked."""

    def __init__(self) -> None:
        self.directory = Path()
        self.asked = 0
        self.given_up: list[str] = []

    async def run(self, delivery: Delivery) -> Any:
        self.asked += 1
        if delivery.method == "sleep":
            await asyncio.sleep(60)
        if delivery.method == "large":
            return "large"
        if delivery.method == "fail":
            raise RuntimeError("boom")
        if delivery.method == "odd":
            raise SandboxError("odd", context={"it": object()})
        return self.asked

    def give_up(self, delivery: Delivery) -> None:
        self.given_up.append(delivery.call)

    async def finished(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def objects() -> Objects:
    return Objects()


@pytest.fixture
async def channel(engine: Engine, objects: Objects) -> AsyncIterator[Channel]:
    crons: list[Any] = []
    transport: Any = engine
    does: Any = objects

    async def scheduled(cron: str, when: str) -> None:
        crons.append((cron, when))

    made = Channel(transport, "p", [], ["* * * * *"], does, scheduled, Path("/own"))
    task = asyncio.create_task(made.serve())
    yield made
    task.cancel()
    await asyncio.wait([task])
    await made.close()


def ask(call: str, method: str = "count", key: str = "", kind: str = "method") -> Delivery:
    args = ["* * * * *", "2024"] if kind == "cron" else []
    return Delivery(call=call, key=key, kind=kind, method=method, args=args)


async def until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_each_delivery_is_answered(
    engine: Engine, objects: Objects, channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    for event in (Attached(objects="/there"), Alive(), ask("1"), ask("2", "fail"), ask("3", "odd"),
                  ask("4", kind="cron"), ask("unknown")):  # fmt: skip
        engine.events.put_nowait(event)
    await until(lambda: len(engine.answers) == 5)
    answers = dict(engine.answers)
    assert answers["1"] == 1
    assert answers["2"]["code"] == "INTERNAL_ERROR"
    assert answers["3"]["message"] == "odd"
    assert answers["4"] is None
    assert channel.attached.is_set()
    assert str(objects.directory) == "/there"


async def test_an_answer_that_the_engine_does_not_take_is_told_as_an_error(
    engine: Engine, channel: Channel
) -> None:
    """Its caller would wait for it up to its time-out."""
    engine.events.put_nowait(ask("1", "large"))
    await until(lambda: len(engine.answers) == 2)
    assert engine.answers[0] == ("1", "large")
    assert engine.answers[1][1]["code"] == "METHOD_FAILED"
    assert "64 MiB" in engine.answers[1][1]["message"]


async def test_work_delivered_twice_is_done_once(
    engine: Engine, objects: Objects, channel: Channel
) -> None:
    for call in ("1", "2"):
        engine.events.put_nowait(ask(call, key="hook:1"))
    await until(lambda: len(engine.answers) == 2)
    engine.events.put_nowait(ask("3", key="hook:1"))
    await until(lambda: len(engine.answers) == 3)
    assert engine.answers == [("1", 1), ("2", 1), ("3", 1)]


async def test_a_call_that_is_cancelled_is_answered_and_given_up(
    engine: Engine, objects: Objects, channel: Channel
) -> None:
    engine.events.put_nowait(ask("1", "sleep"))
    engine.events.put_nowait(Cancel(call="unheard"))
    await until(lambda: objects.asked)
    engine.events.put_nowait(Cancel(call="1"))
    await until(lambda: engine.answers)
    assert engine.answers[0][1]["code"] == "TIMEOUT"
    assert objects.given_up == ["1"]


async def test_it_dials_again_and_says_what_it_works_on(
    engine: Engine, objects: Objects, channel: Channel
) -> None:
    engine.events.put_nowait(ask("1", "sleep"))
    await until(lambda: objects.asked)
    engine.events.put_nowait(None)
    await until(lambda: len(engine.attached) == 2)
    assert engine.attached[1]["running"] == ["1"]
    engine.events.put_nowait(Cancel(call="1"))
    await until(lambda: engine.answers)


async def test_an_engine_that_refuses_is_asked_again(
    engine: Engine, channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    engine.refuse = [WorkerUnavailableError("not now"), WorkerUnavailableError("not now")]
    engine.events.put_nowait(None)
    await until(lambda: not engine.refuse)
    engine.events.put_nowait(ask("1"))
    await until(lambda: engine.answers)
    assert caplog.text.count("not now") == 1


async def test_a_process_whose_place_was_taken_stops_asking(
    engine: Engine, channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    engine.events.put_nowait(Superseded())
    await until(lambda: "another Worker" in caplog.text)
    await asyncio.sleep(0.2)
    assert len(engine.attached) == 1
