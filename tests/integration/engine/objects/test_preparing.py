import asyncio
import contextvars

import pytest

from atoll.engine.engine import Engine
from atoll.engine.objects import origin, preparing
from atoll.engine.processes import ports
from atoll.errors import ProcessReadyTimeoutError
from atoll.wire.objects import ClassOptions, Delivery
from integration.engine.objects.worker import Worker, until


async def test_who_uses_a_sandbox_waits_for_on_start_and_the_hook_itself_does_not(
    engine: Engine,
) -> None:
    order: list[str] = []
    box = engine.sandbox("N", "box")

    async def on_start(delivery: Delivery) -> None:
        origin.note(",".join(delivery.calls))  # as a request of the hook has it
        await asyncio.sleep(0.02)
        async with box.use():
            order.append("hook")

    async def user() -> None:
        async with box.use():
            order.append("user")

    async with Worker(engine, on_start, hooks=("on_start",)) as worker:
        async with asyncio.timeout(5):
            await asyncio.gather(*(user() for _ in range(3)))
        assert order == ["hook", "user", "user", "user"]
        assert worker.told == ["on_start"]


async def test_a_hook_that_hangs_is_given_up(engine: Engine) -> None:
    engine.objects.hooks._timeout = 0.05
    async with Worker(engine, lambda _: asyncio.sleep(60), hooks=("on_start",)) as worker:
        async with asyncio.timeout(5):
            await engine.sandbox("N", "box").ensure_running()
        await until(lambda: worker.cancelled)
        assert worker.cancelled == [worker.seen[0].call]
        engine.objects.hooks._timeout = 60
        async with asyncio.timeout(5):  # it is known to hang: others do not wait for it
            await engine.sandbox("N", "other").ensure_running()


async def test_a_dead_worker_does_not_keep_a_sandbox_from_starting(engine: Engine) -> None:
    async with Worker(engine):
        pass
    async with asyncio.timeout(5):
        await engine.sandbox("N", "box").ensure_running()


async def test_a_start_asked_for_during_another_hook_is_not_waited_for_by_it(
    engine: Engine,
) -> None:
    """`on_stop` may use the sandbox: it wakes, and its `on_start` comes after the hook."""
    box = engine.sandbox("N", "box")

    async def does(delivery: Delivery) -> None:
        if delivery.method == "on_stop":
            origin.note(",".join(delivery.calls))
            await box.ensure_running()

    async with Worker(engine, does, hooks=("on_start", "on_stop")) as worker:
        await box.ensure_running()
        await box.stop()
        await until(lambda: worker.told == ["on_start", "on_stop", "on_start"])
        await box.destroy()


@pytest.fixture
def _own_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted container has no process whose network could be looked into."""

    async def namespace(_: object) -> None:
        return None

    monkeypatch.setattr(ports, "namespace", namespace)


@pytest.mark.usefixtures("_own_network")
async def test_a_required_port_that_does_not_answer_is_told(engine: Engine) -> None:
    engine.objects.preparing._patience = 0.2
    options = ClassOptions(required_ports=[1])
    async with Worker(engine, hooks=("on_error",), options=options) as worker:
        box = engine.sandbox("N", "box")
        with pytest.raises(ProcessReadyTimeoutError, match="port 1"):
            await box.ensure_running()
        await until(lambda: worker.seen)
        assert worker.told == ["on_error"]
        async with asyncio.timeout(5):
            await box.ensure_running()  # it is there all the same


@pytest.mark.usefixtures("_own_network")
async def test_a_required_port_is_waited_for(engine: Engine) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Worker(engine, options=ClassOptions(required_ports=[port])):
        await engine.sandbox("N", "box").ensure_running()


def test_what_runs_at_a_start() -> None:
    assert preparing.command(None, ["/bin/bash"]) == []
    assert preparing.command(None, ["python3"]) == []
    assert preparing.command(None, ["python3", "app.py"]) == ["python3", "app.py"]
    assert preparing.command(["sleep", "1"], ["app"]) == ["sleep", "1"]
    assert preparing.command(None, []) == []


def test_requests_of_different_tasks_do_not_mix() -> None:
    contextvars.copy_context().run(origin.note, "a")
    assert origin.calls() == ()
