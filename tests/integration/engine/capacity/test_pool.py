import asyncio
import sqlite3
from typing import Any

import msgspec
import pytest

from atoll.engine.bare import parts as bare
from atoll.engine.capacity import pool
from atoll.engine.capacity.node import Free
from atoll.engine.engine import Engine
from atoll.engine.lifecycle import steps
from atoll.errors import (
    ContainerNotReadyError,
    ContainerUnavailableError,
    ImageNotFoundError,
    SandboxDestroyedError,
    ValidationFailedError,
)
from atoll.runtime.base import Container, ContainerSpec
from atoll.settings import PoolSettings
from atoll.wire.frames import Kind
from atoll.wire.pool import Prime
from atoll.wire.sandbox import CustomInstance, NamespaceConfig, SandboxOptions, State
from atoll.wire.volumes import CreateVolume
from integration.engine.calling import run
from integration.engine.conftest import Opener
from integration.engine.scripted import Peer, World

TWO = PoolSettings(target=2)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "SETTLE", 0.0)


async def full(engine: Engine, warm: int = 2) -> None:
    async with asyncio.timeout(5):
        while engine.pool_stats().warm != warm or engine.pool_stats().making:
            await asyncio.sleep(0.005)


async def crash(engine: Engine) -> None:
    """Have the engine leave what it has warm, as one that is killed does."""

    async def nothing() -> None:
        pass

    engine.pool.give_up_memory = nothing  # type: ignore[method-assign]


async def test_a_first_call_gets_a_warm_container_and_the_pool_is_filled_again(
    opener: Opener, world: World
) -> None:
    async with opener(pool=TWO) as engine:
        await full(engine)
        warm = set(world.runtime.running)
        assert await run(engine, "hi", id="My_box") == b"hi\n"
        box = engine.sandbox("N", "My_box").record
        assert box
        assert box.host_ref in warm
        assert world.runtime.names == {box.host_ref: "my-box"}
        await full(engine)
        assert world.runtime.starts == 3
        stats = engine.pool_stats()
        assert (stats.taken, stats.missed, stats.assigned, stats.total) == (1, 0, 1, 3)


async def test_identity_is_complete_before_the_first_call(opener: Opener, world: World) -> None:
    async with opener(pool=TWO) as engine:
        await full(engine)
        await engine.configure_namespace("N", NamespaceConfig(env={"A": "1", "B": "1"}))
        options = SandboxOptions(env={"B": "2"}, enable_internet=False)
        await engine.sandbox("N", "box").configure(options)
        await run(engine, "hi")
        told = [h for h in world.runtime.seen if h["op"] in {"assign", "exec", "session.env"}]
        assert [h["op"] for h in told] == ["assign", "exec"]
        assert (told[0]["generation"], told[0]["env"]) == (1, {"A": "1", "B": "2"})
        record = engine.sandbox("N", "box").record
        assert record
        assert world.networks.mode(record.host_ref or "") == "closed"
        hosts = world.state_dir / "run" / str(record.host_ref) / "files" / "hosts"
        assert hosts.read_text().endswith("\tbox\n")


async def test_many_first_calls_at_once_never_share_a_container(
    opener: Opener, world: World
) -> None:
    async with opener(pool=PoolSettings(target=5, batch=5)) as engine:
        await full(engine, 5)
        await asyncio.gather(*(run(engine, "x", id=f"b{n}", op=f"o{n}") for n in range(12)))
        records = [engine.sandbox("N", f"b{n}").record for n in range(12)]
        assert len({record.host_ref for record in records if record}) == 12
        assert len({record.layer_id for record in records if record}) == 12


async def test_who_has_files_wakes_with_them(opener: Opener, world: World) -> None:
    async with opener(pool=TWO) as engine:
        await full(engine)
        box = engine.sandbox("N", "box")
        await run(engine, "x")
        layer = box.record.layer_id if box.record else None
        await box.stop()
        await full(engine)
        await run(engine, "x", op="o2")
        assert box.record
        assert (box.record.layer_id, engine.pool_stats().taken) == (layer, 1)
        await box.destroy()
        await run(engine, "x", op="o3")
        assert box.record.layer_id != layer
        assert (box.record.generation, engine.pool_stats().taken) == (3, 2)


@pytest.mark.parametrize(
    "options",
    [
        SandboxOptions(instance_type="basic"),
        SandboxOptions(instance_type=CustomInstance(vcpu=1, memory_mib=64, disk_mb=64)),
        SandboxOptions(volumes={"/data": "v"}),
    ],
)
async def test_what_fits_nobody_in_the_pool_is_started_cold(
    opener: Opener, world: World, options: SandboxOptions
) -> None:
    async with opener(pool=TWO) as engine:
        await full(engine)
        await engine.volumes.create("N", CreateVolume(name="v"))
        await engine.sandbox("N", "box").configure(options)
        await run(engine, "x")
        assert (engine.pool_stats().warm, engine.pool_stats().taken) == (2, 0)


async def test_a_namespace_has_a_pool_of_its_own_image_and_size(
    opener: Opener, world: World
) -> None:
    async with opener(pool=PoolSettings(refresh_interval=0.05)) as engine:
        await engine.configure_namespace(
            "N", NamespaceConfig(instance_type="basic", image="mine", warm_pool=1)
        )
        await full(engine, 1)
        (kind,) = [kind for kind in engine.pool_stats().kinds if kind.warm]
        assert (kind.instance_type, kind.image, kind.target) == ("basic", "mine", 1)
        await run(engine, "x")
        assert engine.pool_stats().taken == 1


async def test_containers_of_an_image_that_was_built_anew_are_not_used(
    opener: Opener, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opener(pool=TWO) as engine:
        await full(engine)
        old = set(world.runtime.running)
        monkeypatch.setattr(bare.BareImage, "digest", "sha256:new", raising=False)
        await run(engine, "x")
        assert not old & set(world.runtime.running)


async def test_a_start_that_is_given_up_leaves_the_container_in_the_pool(
    opener: Opener, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or each destroy at the wrong moment would take one out of the world until a restart."""
    asked = asyncio.Event()

    async def hanging(self: bare.BareImages, reference: str) -> bare.BareImage:
        asked.set()
        await asyncio.sleep(60)
        return bare.BareImage(reference)

    async with opener(pool=TWO) as engine:
        await full(engine)
        warm = set(world.runtime.running)
        with monkeypatch.context() as patch:
            patch.setattr(bare.BareImages, "obtain", hanging)
            box = engine.sandbox("N", "box")
            await box.configure(SandboxOptions())
            starting = asyncio.create_task(box.ensure_running())
            await asyncio.wait_for(asked.wait(), 5)
            await box.destroy()
            await asyncio.wait([starting])
            assert isinstance(starting.exception(), SandboxDestroyedError)
        assert engine.pool_stats().warm == 2
        await engine.pool.shutdown()
        assert not warm & set(world.runtime.running)


async def test_containers_of_an_image_that_cannot_be_had_stay_in_the_pool(
    opener: Opener, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(self: bare.BareImages, reference: str) -> bare.BareImage:
        raise ImageNotFoundError(reference)

    async with opener(pool=TWO) as engine:
        await full(engine)
        with monkeypatch.context() as patch:
            patch.setattr(bare.BareImages, "obtain", gone)
            with pytest.raises(ImageNotFoundError):
                await run(engine, "x")
        assert engine.pool_stats().warm == 2


async def test_it_is_filled_in_bounded_batches_and_up_to_its_limit(
    opener: Opener, world: World
) -> None:
    world.runtime.delay = 0.02
    settings = PoolSettings(target=9, batch=2, max_warm=5)
    async with opener(pool=settings) as engine:
        most = 0
        async with asyncio.timeout(5):
            while engine.pool_stats().warm < 5:
                most = max(most, engine.pool_stats().making)
                await asyncio.sleep(0.002)
        assert most == 2
        await asyncio.sleep(0.1)
        assert (world.runtime.starts, engine.pool_stats().making) == (5, 0)


async def test_prime_fills_it_and_shutdown_empties_it(opener: Opener, world: World) -> None:
    async with opener() as engine:
        await engine.pool.prime(Prime(target=3))
        assert engine.pool_stats().warm == 3
        await engine.pool.shutdown()
        assert world.left() == {}
        await asyncio.sleep(0.05)
        assert engine.pool_stats().total == 0
        await engine.pool.prime(Prime())
        assert engine.pool_stats().warm == 3
        await engine.pool.prime(Prime(instance_type="basic", target=1))
        assert sorted(kind.warm for kind in engine.pool_stats().kinds) == [1, 3]


@pytest.mark.parametrize("target", [-1, 51, 1 << 62])
async def test_a_number_that_cannot_be_kept_is_refused(opener: Opener, target: int) -> None:
    async with opener() as engine:
        with pytest.raises(ValidationFailedError, match="0 to 50"):
            await engine.pool.prime(Prime(target=target))
        assert {kind.target for kind in engine.pool_stats().kinds} <= {0}


async def test_prime_says_why_nothing_can_be_made(opener: Opener, world: World) -> None:
    world.runtime.failures["start"] = ContainerUnavailableError(context={"reason": "runtime"})
    async with opener() as engine:
        with pytest.raises(ContainerUnavailableError):
            await engine.pool.prime(Prime(target=1))
    assert world.left() == {}


async def test_nothing_of_it_stays_when_the_engine_stops(opener: Opener, world: World) -> None:
    async with opener(pool=TWO) as engine:
        await full(engine)
    assert world.left() == {}
    assert await world.layers.list() == []


async def test_after_a_crash_what_is_ready_is_taken_over_and_the_rest_removed(
    opener: Opener, world: World
) -> None:
    async with opener(pool=TWO) as engine:
        await full(engine)
        warm = set(world.runtime.running)
        await crash(engine)
    half = sqlite3.connect(world.state_dir / "atoll.db")
    (body,) = half.execute("SELECT body FROM warm").fetchone()
    unready = msgspec.json.decode(body) | {"in_force": None, "host_ref": "e0-h"}
    half.execute("INSERT INTO warm VALUES ('e0-h', 'e0-l', ?)", (msgspec.json.encode(unready),))
    half.commit()
    half.close()
    async with opener(pool=TWO) as engine:
        assert engine.pool_stats().warm == 2
        assert set(world.runtime.running) == warm
        assert await engine.store.host_refs() == warm
        assert await run(engine, "x") == b"x\n"
        assert engine.pool_stats().taken == 1


async def test_what_an_engine_of_another_version_left_warm_is_replaced(
    opener: Opener, world: World
) -> None:
    """Its agent may lack what this engine asks of one that is given an identity."""

    async def previous(peer: Peer, header: dict[str, Any]) -> None:
        await peer.send(Kind.REPLY, {"protocol": 1, "generation": 0, "version": "0.0.9"})

    async with opener(pool=TWO) as engine:
        await full(engine)
        warm = set(world.runtime.running)
        await crash(engine)
    world.runtime.scripts["hello"] = previous
    async with opener(pool=TWO):
        assert not warm & set(world.runtime.running)


async def test_a_crash_in_the_middle_of_an_assignment_neither_loses_nor_doubles(
    opener: Opener, world: World
) -> None:
    """The store says that the sandbox has it, the agent has not heard of it yet."""

    async def silent(peer: Peer, header: dict[str, Any]) -> None:
        await asyncio.sleep(60)

    async with opener(pool=PoolSettings(target=1)) as engine:
        await full(engine, 1)
        world.runtime.scripts["assign"] = silent
        starting = asyncio.create_task(run(engine, "x"))
        async with asyncio.timeout(5):
            while not any(h["op"] == "assign" for h in world.runtime.seen):
                await asyncio.sleep(0.005)
        record = await engine.store.get("N", "box")
        assert record
        await crash(engine)
        starting.cancel()
        transition = engine.sandbox("N", "box")._transitions._task
        assert transition
        transition.remove_done_callback(lambda _: None)
        copied = dict(world.runtime.running)
        transition.cancel()
        await asyncio.wait([transition, starting])
        world.runtime.running.update(copied)
    del world.runtime.scripts["assign"]
    async with opener() as engine:
        assert (await engine.info("N", "box")).state is State.STOPPED
        assert world.left() == {}
        assert await run(engine, "x") == b"x\n"


async def test_what_has_ended_is_given_to_nobody(opener: Opener, world: World) -> None:
    async with opener(pool=PoolSettings(target=2, refresh_interval=60)) as engine:
        await full(engine)
        first, second = world.runtime.running
        world.runtime.kill(first)
        assert await run(engine, "x") == b"x\n"
        record = engine.sandbox("N", "box").record
        assert record
        assert record.host_ref == second
        assert engine.pool_stats().taken == 1


async def test_what_has_ended_is_made_anew_without_being_asked_for(
    opener: Opener, world: World
) -> None:
    async with opener(pool=PoolSettings(target=2, refresh_interval=0.02)) as engine:
        await full(engine)
        old = set(world.runtime.running)
        for host_ref in old:
            world.runtime.kill(host_ref)
        async with asyncio.timeout(5):
            while len(world.runtime.running) < 2:
                await asyncio.sleep(0.005)
        assert not old & await engine.store.host_refs()


async def test_what_a_namespace_wants_no_more_is_removed(opener: Opener, world: World) -> None:
    async with opener(pool=PoolSettings(refresh_interval=0.02)) as engine:
        await engine.configure_namespace("N", NamespaceConfig(warm_pool=3))
        await full(engine, 3)
        await engine.configure_namespace("N", NamespaceConfig(warm_pool=1))
        await full(engine, 1)
        await engine.configure_namespace("N", NamespaceConfig(warm_pool=2, image="other"))
        await full(engine, 2)
        assert {spec.image for spec in world.runtime.running.values()} == {"other"}


async def test_where_policies_are_enforced_late_only_what_is_open_is_taken(
    opener: Opener, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a warm container could reach, it could reach for a while after it was closed."""

    async def restrict(*_: object) -> None:
        pass

    monkeypatch.setattr(type(world.networks), "restrict", restrict, raising=False)
    async with opener(pool=TWO) as engine:
        await full(engine)
        await engine.sandbox("N", "box").configure(SandboxOptions(enable_internet=False))
        await run(engine, "x")
        assert (engine.pool_stats().warm, engine.pool_stats().taken) == (2, 0)
        await run(engine, "x", id="open", op="o2")
        assert engine.pool_stats().taken == 1


async def test_what_is_warm_gives_way_to_a_start_that_finds_no_room(
    opener: Opener, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a cluster whose quota counts it, too, and goes on doing so for a moment."""
    monkeypatch.setattr(steps, "COUNTED", 0.4)
    start, refused = world.runtime.start, list[str]()

    async def limited(spec: ContainerSpec) -> Container:
        if len(world.runtime.running) >= 2 or len(refused) == 1:
            refused.append(spec.host_ref)
            raise ContainerUnavailableError("exceeded quota", context={"reason": "capacity"})
        return await start(spec)

    monkeypatch.setattr(world.runtime, "start", limited)
    async with opener(pool=PoolSettings(target=2, refresh_interval=0.5)) as engine:
        await full(engine)
        for id in ("a", "b"):
            await engine.sandbox("N", id).configure(SandboxOptions(instance_type="basic"))
        await run(engine, "x", id="a")
        await run(engine, "x", id="b", op="o2")
        assert refused == 2 * [str(engine.sandbox("N", "a").record.host_ref)]  # type: ignore[union-attr]
        await engine.sandbox("N", "c").configure(SandboxOptions(instance_type="basic"))
        with pytest.raises(ContainerUnavailableError):
            await run(engine, "x", id="c", op="o3")
        assert len(world.runtime.running) == 2


async def test_a_warm_container_that_dies_when_it_is_taken_is_replaced_by_a_cold_start(
    opener: Opener, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def seen(self: pool.WarmPool, warm: object) -> bool:
        return True

    monkeypatch.setattr(pool.WarmPool, "_runs", seen)
    async with opener(pool=PoolSettings(target=1, refresh_interval=60)) as engine:
        await full(engine, 1)
        world.runtime.kill(next(iter(world.runtime.running)))
        with pytest.raises(ContainerNotReadyError) as caught:
            await run(engine, "x")
        assert caught.value.retry_after
        assert await run(engine, "x") == b"x\n"
        await engine.sandbox("N", "box").destroy()


async def test_a_node_without_memory_makes_none(opener: Opener, world: World) -> None:
    async with opener(pool=PoolSettings(target=1, refresh_interval=0.02)) as engine:
        await full(engine, 1)
        real = engine._shared.admission.free
        engine._shared.admission.free = lambda: Free(0, 1 << 20, 1 << 40)
        await engine.pool.give_up_memory()
        await asyncio.sleep(0.1)
        assert world.left() == {}
        engine._shared.admission.free = real
        await full(engine, 1)
