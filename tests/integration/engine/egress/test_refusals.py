import asyncio

from msgspec.structs import replace

from atoll.engine.egress.refusals import MAX_REASON, TYPE, Refusals
from atoll.engine.engine import Engine
from atoll.network.gateway import news
from atoll.network.gateway.protocol import Decision
from integration.engine.calling import run
from integration.engine.scripted import World

ONE = Decision(time=1, protocol="tcp", verdict="refused", rule="denied", address="8.8.8.8", port=53)


async def reasons(engine: Engine) -> list[str | None]:
    found = await engine.store.events.after(("N", "box"), 0, 1_000)
    return [event.reason for event in found if event.type == TYPE]


async def test_refusals_of_a_kind_are_one_event(engine: Engine) -> None:
    await run(engine, "x")
    refusals = Refusals(engine.store)
    named = replace(ONE, host="a.test", port=0)
    for decision in (ONE, ONE, named, replace(ONE, verdict="allowed", port=80), named):
        refusals.hear("N/box", decision)
    refusals.hear("N/never-was", ONE)
    await refusals.close()
    assert await reasons(engine) == ["8.8.8.8:53: denied", "a.test: denied"]


async def test_what_a_gateway_makes_up_leaves_room_for_other_events(engine: Engine) -> None:
    """It is not trusted: with events at will it would push out what happened to the sandbox."""
    await run(engine, "x")
    refusals = Refusals(engine.store)
    for number in range(1_000):
        refusals.hear("N/box", replace(ONE, host=f"{number}." + "a" * 1_000))
    await refusals.close()
    found = await reasons(engine)
    assert len(found) == news.BURST
    assert all(reason and len(reason) == MAX_REASON for reason in found)


async def test_what_the_gateway_tells_is_heard(engine: Engine, world: World) -> None:
    await run(engine, "x")
    assert world.gateway
    world.gateway.hear("N/box", ONE)
    async with asyncio.timeout(10):
        while not await reasons(engine):
            await asyncio.sleep(0.01)


async def test_a_sandbox_made_again_is_told_of_what_the_one_before_it_was(
    engine: Engine, world: World
) -> None:
    assert world.gateway
    for _ in range(2):
        await run(engine, "x")
        before = len(await reasons(engine))
        world.gateway.hear("N/box", ONE)
        async with asyncio.timeout(10):
            while len(await reasons(engine)) == before:
                await asyncio.sleep(0.01)
        await engine.sandbox("N", "box").destroy()


async def test_what_is_heard_late_of_one_that_was_destroyed_is_no_event(engine: Engine) -> None:
    await run(engine, "x")
    await engine.sandbox("N", "box").destroy()
    refusals = Refusals(engine.store)
    refusals.hear("N/box", ONE)
    await refusals.close()
    assert await reasons(engine) == []
