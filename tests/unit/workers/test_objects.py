import asyncio
from pathlib import Path
from typing import Any

import pytest

import atoll
from atoll.errors import (
    DeadlockError,
    HookFailedError,
    MethodFailedError,
    MethodNotFoundError,
    PortInUseError,
    SandboxDestroyedError,
    ValidationFailedError,
)
from atoll.wire.objects import Delivery
from atoll.workers import objects as module
from atoll.workers.objects import Objects

OBJECTS: list[Objects] = []


class Box(atoll.Sandbox):
    made = 0

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        type(self).made += 1
        self.seen: list[str] = []
        if env == "broken":
            raise OSError("broken")

    async def on_start(self) -> None:
        self.seen.append("starting")
        await asyncio.sleep(0.01)
        self.seen.append("started")

    def on_stop(self, params: dict[str, Any]) -> None:  # type: ignore[override]
        self.seen.append(f"stopped {params['reason']}")

    async def on_error(self, error: atoll.SandboxError) -> None:
        self.seen.append(error.code)

    async def alarm(self) -> None:
        self.seen.append("alarm")

    async def look(self) -> list[str]:
        return self.seen

    def plain(self, a: int, *, b: int = 0) -> tuple[int, int]:
        return a, b

    async def fail(self) -> None:
        raise KeyError("x")

    async def refuse(self) -> None:
        raise PortInUseError("taken")

    async def thing(self) -> object:
        return object()

    async def closed(self) -> Any:
        async def work() -> str:
            await asyncio.sleep(60)
            return "never"

        return await self.ctx.block_concurrency_while(work)

    async def destroyed(self, objects: Any) -> None:
        await self.keep("a")
        await OBJECTS[0].run(ask("", kind="forget"))
        await self.keep("a")

    async def later(self) -> None:
        async def work() -> None:
            await asyncio.sleep(0.02)
            self.seen.append("later")

        self.ctx.wait_until(work())

    async def keep(self, key: str) -> None:
        await self.ctx.storage.put(key, str(self.ctx.id))


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    made = Objects(atoll.connect("unix:///no.sock"), {"N": Box}, "env")
    made.directory = tmp_path
    Box.made = 0
    OBJECTS[:] = [made]
    return made


def ask(method: str, *args: Any, object: str = "u1", kind: str = "method", **more: Any) -> Delivery:
    return Delivery(
        call=more.pop("call", "c"), key="", kind=kind, namespace=more.pop("namespace", "N"), id="one",
        object=object, method=method, args=list(args), calls=more.pop("calls", []), kwargs=more,
    )  # fmt: skip


async def test_an_object_has_one_instance_and_keeps_it(objects: Objects) -> None:
    assert await objects.run(ask("plain", 1, b=2)) == {"$": "tuple", "v": [1, 2]}
    await objects.run(ask("look"))
    assert Box.made == 1
    await objects.run(ask("look", object="u2"))
    assert Box.made == 2
    objects.close()


async def test_hooks_may_take_less_than_they_are_given_and_need_not_be_async(
    objects: Objects,
) -> None:
    await objects.run(ask("on_start", kind="hook"))
    await objects.run(ask("on_stop", {"exit_code": 0, "reason": "idle"}, kind="hook"))
    await objects.run(ask("on_error", PortInUseError("x").to_wire(), kind="hook"))
    await objects.run(ask("alarm", {"retry_count": 0}, kind="alarm"))
    seen = await objects.run(ask("look"))
    assert seen == ["starting", "started", "stopped idle", "PORT_IN_USE", "alarm"]


async def test_nothing_is_let_in_during_on_start(objects: Objects) -> None:
    _, seen = await asyncio.gather(
        objects.run(ask("on_start", kind="hook")), objects.run(ask("look"))
    )
    assert seen == ["starting", "started"]


async def test_whatever_a_method_does_is_an_answer(
    objects: Objects, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(MethodFailedError, match="KeyError") as failed:
        await objects.run(ask("fail"))
    assert failed.value.context == {"method": "fail", "type": "KeyError"}
    assert "Traceback" in caplog.text
    with pytest.raises(HookFailedError, match="KeyError"):
        await objects.run(ask("fail", kind="hook"))
    with pytest.raises(PortInUseError):
        await objects.run(ask("refuse"))
    with pytest.raises(ValidationFailedError, match="what thing returns"):
        await objects.run(ask("thing"))
    with pytest.raises(MethodFailedError, match="TypeError"):
        await objects.run(ask("plain", 1, 2))
    with pytest.raises(MethodNotFoundError):
        await objects.run(ask("nothing"))
    with pytest.raises(MethodNotFoundError):
        await objects.run(ask("look", namespace="other", object="u9"))


async def test_an_instance_that_cannot_be_made_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    objects = Objects(atoll.connect("unix:///no.sock"), {"N": Box}, "broken")
    objects.directory = tmp_path
    for _ in range(2):
        with pytest.raises(MethodFailedError, match="broken"):
            await objects.run(ask("look"))


async def test_a_call_given_up_lets_others_in_whatever_it_does(objects: Objects) -> None:
    stuck = ask("closed", calls=["c"])
    task = asyncio.create_task(objects.run(stuck))
    await asyncio.sleep(0.01)
    with pytest.raises(DeadlockError):
        await objects.run(ask("look", calls=["c", "d"]))
    waiting = asyncio.create_task(objects.run(ask("look", calls=["e"])))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    objects.give_up(stuck)
    assert await waiting == []
    task.cancel()
    await asyncio.wait([task])


async def test_idle_instances_are_let_go_when_there_are_many(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", 3)
    for number in range(5):
        await objects.run(ask("keep", "a", object=f"u{number}"))
    assert len(objects._instances) == 3
    await objects.run(ask("look", object="u0"))
    assert Box.made == 6
    objects.close()


async def test_one_more_than_all_busy_ones_is_let_in(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", 1)
    stuck = asyncio.create_task(objects.run(ask("closed", calls=["c"])))
    await asyncio.sleep(0)
    assert await objects.run(ask("look", object="u2")) == []
    stuck.cancel()
    await asyncio.wait([stuck])


async def test_storage_goes_with_the_object(objects: Objects, tmp_path: Path) -> None:
    await objects.run(ask("keep", "a"))
    assert (tmp_path / "u1.sqlite").exists()
    await objects.run(ask("", kind="forget"))
    assert list(tmp_path.iterdir()) == []
    await objects.run(ask("", kind="forget"))
    assert str(module.ObjectId("one")) == "one"
    assert repr(module.ObjectId("one")) == "ObjectId('one')"


async def test_a_method_that_outlives_its_object_leaves_no_storage(
    objects: Objects, tmp_path: Path
) -> None:
    with pytest.raises(SandboxDestroyedError):
        await objects.run(ask("destroyed", None))
    assert list(tmp_path.iterdir()) == []


async def test_an_instance_with_work_under_way_is_kept(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", 0)
    await objects.run(ask("later"))
    await objects.run(ask("look", object="u2"))
    assert await objects.run(ask("look")) == []
    await objects.finished()
    assert await objects.run(ask("look")) == ["later"]
