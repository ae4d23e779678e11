"""Sandbox classes in real processes: what is killed, hangs, calls itself or is no data."""

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import atoll
from atoll.errors import (
    DeadlockError,
    MethodFailedError,
    OperationInterruptedError,
    SandboxError,
    ValidationFailedError,
)
from integration.workers.project import Project, serving

CODE = """
import asyncio, datetime, os, time
from pathlib import Path
from atoll import Sandbox, get_sandbox

HERE = Path(__file__).parent

def log(line):
    with (HERE / "log").open("a") as file:
        file.write(line + "\\n")

class Box(Sandbox):
    env_vars = {"OF": "class"}

    async def on_start(self):
        await self.exec("true")
        await asyncio.sleep(0.1)
        await self.ctx.storage.put("started", True)
        log(f"start {self.id}")

    def on_stop(self, params):
        log(f"stop {self.id}")

    async def on_error(self, error):
        log(f"error {error.code}")

    async def alarm(self):
        log("alarm")

    async def get(self, key):
        return await self.ctx.storage.get(key)

    async def count(self):
        n = (await self.ctx.storage.get("n") or 0) + 1
        await self.ctx.storage.put("n", n)
        return n

    async def echo(self, value):
        return value

    async def run(self, command):
        return await self.exec(command)

    async def boom(self):
        raise KeyError("x")

    async def again(self):
        return await get_sandbox(self.env.BOX, self.id).count()

    async def closed(self):
        async def work(transaction):
            await self.ctx.storage.put("half", True)
            return await get_sandbox(self.env.BOX, "two").back(self.id)
        return await self.ctx.storage.transaction(work)

    async def back(self, id):
        return await get_sandbox(self.env.BOX, id).count()

    async def without_end(self):
        return await get_sandbox(self.env.BOX, self.id).without_end()

    async def die_in_transaction(self):
        await self.ctx.storage.put("before", True)
        await self.ctx.storage.sync()
        async def work(transaction):
            await self.ctx.storage.put("inside", True)
            os._exit(1)
        await self.ctx.storage.transaction(work)

    async def fill(self):
        for n in range(1_000_000):
            await self.ctx.storage.put({"a": n, "b": n})
            await self.ctx.storage.sync()
            with (HERE / "acknowledged").open("a") as file:
                file.write(f"{n}\\n")

    async def slowly(self, payload):
        log(f"slowly {payload}")
        while not (HERE / "go").exists():
            await asyncio.sleep(0.02)
        log(f"done {payload}")

    async def started_first(self, command):
        result = await self.exec(command)
        return await self.ctx.storage.get("started"), result.stdout

    async def start_in_a_block(self):
        async def work():
            return (await self.exec("echo inside")).stdout
        return await self.ctx.block_concurrency_while(work)

    async def set_alarm(self, seconds):
        await self.ctx.storage.set_alarm(seconds)
"""


@pytest.fixture
async def project(tmp_path: Path) -> AsyncIterator[Project]:
    async with serving(tmp_path, CODE) as served:
        await served.eventually(lambda: served.box().call("count"))
        yield served


def lines(project: Project) -> list[str]:
    file = project.root / "log"
    return file.read_text().splitlines() if file.exists() else []


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


async def call(box: atoll.Sandbox, method: str, *args: Any) -> Any:
    return await box.call(method, *args)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods by attribute, as a Worker has them."""

    def remote(self: atoll.Sandbox, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args: self.call(name, *args)

    monkeypatch.setattr(atoll.Sandbox, "__getattr__", remote, raising=False)


async def test_methods_count_right_answer_right_and_fail_typed(project: Project) -> None:
    box: Any = project.box()
    start = await box.count()
    counted = await asyncio.gather(*(box.count() for _ in range(50)))
    assert sorted(counted) == list(range(start + 1, start + 51))
    result = await box.run("echo $OF; exit_code() { return 3; }; exit_code")
    assert (result.stdout, result.exit_code) == ("class\n", 3)
    assert isinstance(result, atoll.ExecResult)
    assert await box.echo({"b": b"\0", 1: (2.5, None)}) == {"b": b"\0", 1: (2.5, None)}
    with pytest.raises(MethodFailedError, match="KeyError"):
        await box.boom()
    for value in (object(), "\ud800"):
        with pytest.raises(ValidationFailedError, match="argument 1 of echo"):
            await box.echo(value)
    assert await box.again() == start + 51
    with pytest.raises(DeadlockError, match="waits for itself"):
        await box.closed()
    assert await box.get("half") is None
    with pytest.raises(DeadlockError, match="recursion"):
        await box.without_end()


async def test_a_worker_killed_in_a_transaction_loses_nothing_else(project: Project) -> None:
    box: Any = project.box()
    with pytest.raises(OperationInterruptedError):
        await box.die_in_transaction()
    assert await project.eventually(lambda: box.get("before"))
    assert await box.get("inside") is None


async def test_a_worker_killed_while_it_writes_loses_nothing_acknowledged(
    project: Project,
) -> None:
    filling = asyncio.create_task(call(project.box(), "fill"))
    acknowledged = project.root / "acknowledged"
    await until(lambda: acknowledged.exists() and acknowledged.read_text().count("\n") > 20)
    project.kill_worker()
    known = int(acknowledged.read_text().rpartition("\n")[0].rpartition("\n")[2])
    with pytest.raises(SandboxError):
        await filling
    (file,) = (one for one in project.storage.glob("*.sqlite") if _value(one, "a") is not None)
    kept = _value(file, "a")
    assert kept is not None
    assert kept >= known > 0
    assert _value(file, "b") == kept  # a mapping is stored whole


def _value(file: Path, key: str) -> int | None:
    connection = sqlite3.connect(file)
    try:
        rows = connection.execute("SELECT value FROM _atoll_kv WHERE key = ?", (key,)).fetchall()
    finally:
        connection.close()
    return int(json.loads(rows[0][0])) if rows else None


async def test_hooks_come_for_each_start_and_also_when_the_worker_was_away(
    project: Project,
) -> None:
    box = project.box()
    await box.exec("true")
    await box.stop()
    await until(lambda: lines(project) == ["start one", "stop one"])
    await box.exec("true")
    assert lines(project) == ["start one", "stop one", "start one"]
    await project.stop_worker()
    await box.stop()
    began = time.monotonic()
    await box.exec("true")
    assert time.monotonic() - began < 15
    await project.start_worker()
    await until(lambda: lines(project)[3:] == ["stop one", "start one"])
    await box.destroy()
    await until(lambda: lines(project)[-1] == "stop one")
    await until(lambda: len(list(project.storage.glob("*.sqlite"))) == 0)


async def test_a_method_that_starts_its_sandbox_goes_on_after_on_start(project: Project) -> None:
    assert await call(project.box(), "started_first", "echo x") == (True, "x\n")
    began = time.monotonic()
    assert await call(project.box("two"), "start_in_a_block") == "inside\n"
    assert time.monotonic() - began < 20  # and not when the hook's time is over
    assert lines(project) == ["start one", "start two"]


async def test_timers_survive_the_engine_and_fire_in_order(project: Project) -> None:
    box = project.box()
    (project.root / "go").touch()
    await call(box, "set_alarm", 1)
    for delay in (1.4, 1.2, 1.3):
        await box.schedule(delay, "slowly", delay)
    project.kill_engine()
    await asyncio.sleep(1.5)
    project.start_engine()
    await until(lambda: len(lines(project)) >= 7)
    assert lines(project) == [
        "alarm", *(f"{word} {delay}" for delay in (1.2, 1.3, 1.4) for word in ("slowly", "done")),
    ]  # fmt: skip
    assert await project.eventually(box.list_schedules, lambda found: not found) == []


async def test_an_engine_killed_before_the_answer_asks_again_and_it_is_done_once(
    project: Project,
) -> None:
    """The Worker lives on, and knows that it works on it already."""
    box = project.box()
    await box.schedule(0, "slowly", "x")
    await until(lambda: lines(project) == ["slowly x"])
    project.kill_engine()
    project.start_engine()
    assert await project.eventually(lambda: call(box, "count"))
    (project.root / "go").touch()
    await project.eventually(box.list_schedules, lambda found: not found)
    assert lines(project) == ["slowly x", "done x"]


async def test_a_worker_killed_before_the_answer_is_asked_again(project: Project) -> None:
    box = project.box()
    await box.schedule(0, "slowly", "x")
    await until(lambda: lines(project) == ["slowly x"])
    project.kill_worker()
    await until(lambda: lines(project) == ["slowly x", "slowly x"])
    (project.root / "go").touch()
    await project.eventually(box.list_schedules, lambda found: not found)


async def test_a_reload_keeps_storage_and_brings_new_methods(project: Project) -> None:
    box: Any = project.box()
    n = await box.count()
    await project.stop_worker()
    project.write(CODE + "\n    async def fresh(self):\n        return 'new'\n")
    await project.start_worker()
    assert await box.fresh() == "new"
    assert await box.count() == n + 1


RENAMED = """
from atoll import Sandbox
class Crate(Sandbox):
    async def count(self):
        n = (await self.ctx.storage.get("n") or 0) + 1
        await self.ctx.storage.put("n", n)
        return n
"""
V1 = {"tag": "v1", "new_sqlite_classes": ["Box"]}
V2 = {"tag": "v2", "renamed_classes": [{"from": "Box", "to": "Crate"}]}
V3 = {"tag": "v3", "deleted_classes": ["Crate"]}


async def test_a_renamed_class_keeps_everything_and_a_deleted_one_nothing(
    project: Project,
) -> None:
    box: Any = project.box()
    n = await box.count()
    await project.stop_worker()
    bound = {"bindings": [{"name": "CRATE", "class_name": "Crate"}]}
    project.write(RENAMED, durable_objects=bound, migrations=[V1, V2])
    await project.start_worker()
    assert await project.eventually(lambda: call(box, "count")) == n + 1
    assert list(await project.env.namespace("shop-crate").list()) == []
    await project.stop_worker()
    project.write("", durable_objects={"bindings": []}, migrations=[V1, V2, V3])
    await project.start_worker()
    assert list(await project.env.namespace("shop-box").list()) == []
    await until(lambda: not list(project.storage.glob("*.sqlite")))
