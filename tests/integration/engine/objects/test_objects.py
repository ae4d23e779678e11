import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from atoll.engine.engine import Engine
from atoll.engine.objects import origin
from atoll.errors import (
    DeadlockError,
    InvalidConfigError,
    MethodFailedError,
    MethodNotFoundError,
    OperationInterruptedError,
    TimeoutError,
    ValidationFailedError,
    WorkerUnavailableError,
)
from atoll.wire.objects import (
    AttachWorker,
    CallRequest,
    ClassOptions,
    Delivery,
    Migration,
    ProjectConfig,
    ScheduleRequest,
    WorkerClass,
)
from atoll.wire.sandbox import NamespaceConfig, State
from integration.engine.conftest import Opener
from integration.engine.objects.worker import Worker, until

F = CallRequest(method="f", args=[1], kwargs={"a": 2})


async def test_a_method_is_called_without_a_container(engine: Engine) -> None:
    async with Worker(engine, lambda delivery: [delivery.args, delivery.kwargs]) as worker:
        assert await engine.objects.call("N", "box", F) == [[1], {"a": 2}]
        assert (await engine.info("N", "box")).state is State.CREATED
        await engine.objects.call("N", "box", F)
    assert len({delivery.object for delivery in worker.seen}) == 1


async def test_what_cannot_be_called_says_why(engine: Engine) -> None:
    with pytest.raises(MethodNotFoundError, match="namespace 'N'"):
        await engine.objects.call("N", "box", F)
    async with Worker(engine):
        with pytest.raises(MethodNotFoundError, match="there are: f, g"):
            await engine.objects.call("N", "box", CallRequest(method="h"))
    with pytest.raises(WorkerUnavailableError):
        await engine.objects.call("N", "box", F)


async def test_a_method_that_hangs_is_a_timeout(engine: Engine) -> None:
    async with Worker(engine, lambda _: asyncio.sleep(60)) as worker:
        with pytest.raises(TimeoutError):
            await engine.objects.call("N", "box", CallRequest(method="f", timeout_ms=20))
        await until(lambda: worker.cancelled)


async def test_a_worker_that_ends_in_a_call_leaves_its_outcome_open(engine: Engine) -> None:
    async with Worker(engine, lambda _: asyncio.sleep(60)) as worker:
        call = asyncio.create_task(engine.objects.call("N", "box", F))
        await until(lambda: worker.seen)
    with pytest.raises(OperationInterruptedError, match="not known"):
        await call


async def test_methods_that_call_one_another_without_end_are_stopped(engine: Engine) -> None:
    async with Worker(engine):
        origin.note(",".join("x" * 32))
        with pytest.raises(DeadlockError, match="recursion"):
            await engine.objects.call("N", "box", F)
        origin.note(None)


async def test_what_a_class_says_holds_also_when_its_worker_is_gone(opener: Opener) -> None:
    options = ClassOptions(
        sleep_after_ms=5_000, env={"A": "class"}, labels={"of": "class"}, enable_internet=False
    )
    async with opener() as engine:
        await engine.configure_namespace("N", NamespaceConfig(env={"A": "x", "B": "y"}))
        async with Worker(engine, options=options):
            pass
    async with opener() as engine:
        config = engine.namespaces["N"]
        assert config.env == {"A": "class", "B": "y"}
        assert (config.sleep_after_ms, config.enable_internet) == (5_000, False)
        await engine.configure_namespace("N", NamespaceConfig(image="atoll/other"))
        assert engine.namespaces["N"].labels == {"of": "class"}
        assert engine.namespaces["N"].image == "atoll/other"


async def test_a_schedule_is_called_with_its_payload(engine: Engine) -> None:
    async with Worker(engine) as worker:
        later = ScheduleRequest(method="f", payload={"x": 1}, delay_ms=10)
        await engine.objects.schedule("N", "box", later)
        await until(lambda: worker.seen)
        assert (worker.seen[0].kind, worker.seen[0].args) == ("schedule", [{"x": 1}])
        far = ScheduleRequest(method="g", at=datetime.now(UTC) + timedelta(days=1))
        await engine.objects.schedule("N", "box", far)
        assert [one.method for one in await engine.objects.schedules(("N", "box"))] == ["g"]


async def test_an_alarm_tells_which_try_it_is(engine: Engine) -> None:
    async with Worker(engine) as worker:
        await engine.objects.set_alarm("N", "box", datetime.now(UTC))
        await until(lambda: worker.seen)
    assert worker.seen[0].method == "alarm"
    assert worker.seen[0].args == [{"retry_count": 0, "is_retry": False}]


async def test_a_cron_is_delivered_to_the_project(engine: Engine) -> None:
    async with Worker(engine, crons=("* * * * *",)) as worker:
        engine.objects.timers._now = lambda: datetime.now(UTC).timestamp() + 61
        engine.objects.timers.look()
        await until(lambda: worker.seen)
    assert worker.seen[0].kind == "cron"
    assert worker.seen[0].args[0] == "* * * * *"


@pytest.mark.parametrize(
    "request_",
    [ScheduleRequest(method="f"), ScheduleRequest(method="f", at=datetime(2024, 1, 1)),  # noqa: DTZ001
     ScheduleRequest(method="f", at=datetime.now(UTC), delay_ms=1)],
)  # fmt: skip
async def test_a_schedule_has_exactly_one_time(engine: Engine, request_: ScheduleRequest) -> None:
    async with Worker(engine):
        with pytest.raises(ValidationFailedError):
            await engine.objects.schedule("N", "box", request_)


async def test_a_timer_that_is_given_up_is_reported(engine: Engine) -> None:
    def does(delivery: Delivery) -> None:
        if delivery.method == "f":
            raise MethodFailedError("boom")

    async with Worker(engine, does) as worker:
        now = engine.objects.timers._now
        shift = 0.0
        engine.objects.timers._now = lambda: now() + shift
        await engine.objects.schedule("N", "box", ScheduleRequest(method="f", delay_ms=0))
        while "on_error" not in worker.told:
            shift += 500
            engine.objects.timers.look()
            await asyncio.sleep(0.01)
    assert worker.told.count("f") == 7


async def test_destroying_a_sandbox_ends_its_timers_and_storage(engine: Engine) -> None:
    async with Worker(engine) as worker:
        await engine.objects.call("N", "box", F)
        late = ScheduleRequest(method="f", delay_ms=60_000)
        await engine.objects.schedule("N", "box", late)
        await engine.sandbox("N", "box").destroy()
        await until(lambda: "forget" in worker.told)
    assert await engine.objects.schedules(("N", "box")) == []
    assert await engine.store.read("SELECT 1 FROM objects", ()) == []


async def test_a_deleted_class_takes_its_sandboxes_along(opener: Opener) -> None:
    first = ProjectConfig(classes={"Box": "N"})
    gone = ProjectConfig(migrations=[Migration(tag="v1", deleted_classes=["Box"])])
    async with opener() as engine:
        assert (await engine.objects.configure("p", first)).namespaces == {"Box": "N"}
        async with Worker(engine) as worker:
            await engine.sandbox("N", "box").ensure_running()
            assert (await engine.objects.configure("p", gone)).namespaces == {}
            await until(lambda: "forget" in worker.told)
        assert (await engine.list("N", state=None, labels={}, cursor=None, limit=9)).sandboxes == []


async def test_an_engine_killed_while_it_deleted_a_class_goes_on(opener: Opener) -> None:
    async with opener() as engine:
        await engine.objects.configure("p", ProjectConfig(classes={"Box": "N"}))
        await engine.sandbox("N", "box").ensure_running()
        gone = ProjectConfig(migrations=[Migration(tag="v1", deleted_classes=["Box"])])
        await engine.objects.registry.configure("p", gone)
    async with opener() as engine:
        assert (await engine.list("N", state=None, labels={}, cursor=None, limit=9)).sandboxes == []
        assert engine.objects.registry.deleting() == []


async def test_what_a_worker_says_of_itself_is_checked(engine: Engine) -> None:
    wrong = AttachWorker(classes=[WorkerClass(namespace="N", name="Box", hooks=["exec"])])
    with pytest.raises(ValidationFailedError, match="hook"):
        await engine.attach_worker("p", wrong)
    with pytest.raises(InvalidConfigError):
        await engine.attach_worker("p", AttachWorker(crons=["never"]))
    with pytest.raises(ValidationFailedError):
        await engine.attach_worker("no/project", AttachWorker())
    with pytest.raises(MethodNotFoundError, match="alarm"):
        await engine.objects.set_alarm("N", "box", datetime.now(UTC))


async def test_an_object_whose_sandbox_is_gone_is_found_at_the_next_start(opener: Opener) -> None:
    """An engine may be killed between the tombstone and what follows from it."""
    async with opener() as engine:
        await engine.objects.table.ensure(("N", "lost"))
    async with opener() as engine, Worker(engine) as worker:
        await until(lambda: worker.told == ["forget"])
