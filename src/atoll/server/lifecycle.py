"""What callers ask about the life of a sandbox: sleep, activity, events, use; and of the warm pool."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import msgspec
from starlette.requests import Request

from atoll.engine.engine import Engine
from atoll.engine.sandbox import Sandbox
from atoll.server import addressed, answer, shapes
from atoll.server.answer import Stream
from atoll.wire.agent import HEARTBEAT_INTERVAL
from atoll.wire.base import Done, Empty
from atoll.wire.frames import Frame, Kind
from atoll.wire.pool import PoolStats, Prime
from atoll.wire.sandbox import EventsQuery, Metrics, SandboxEvent, SandboxInfo


async def _existing(engine: Engine, request: Request) -> Sandbox:
    """Return the object of a sandbox that there is.

    Raises:
        SandboxNotFoundError: there is none.
    """
    box = addressed.sandbox(engine, request)
    await engine.info(box.namespace, box.id)
    return box


async def sleep(engine: Engine, request: Request, wanted: Empty) -> SandboxInfo:
    """Freeze or stop, as its `sleep_mode` says."""
    await addressed.sandbox(engine, request).sleep()
    return await engine.info(request.path_params["namespace"], request.path_params["id"])


async def renew(engine: Engine, request: Request, wanted: Empty) -> Done:
    """Have idle time begin anew, unless it sleeps."""
    box = await _existing(engine, request)
    box.renew()
    return Done()


async def metrics(engine: Engine, request: Request, wanted: Empty) -> Metrics:
    """Tell what it uses."""
    box = await _existing(engine, request)
    return await box.metrics()


async def events(engine: Engine, request: Request, wanted: EventsQuery) -> Stream:
    """Answer with what happened, and with what happens."""
    key = request.path_params["namespace"], request.path_params["id"]
    id: str = request.scope["request_id"]
    form = shapes.event_form(request.headers.get("accept", ""), id)
    source = _events(engine, key, wanted)
    return Stream(lambda stream: answer.pump(source, form, stream, id))


@asynccontextmanager
async def _events(
    engine: Engine, key: tuple[str, str], wanted: EventsQuery
) -> AsyncIterator[AsyncIterator[Frame]]:
    async with aclosing(_followed(engine, key, wanted.after)) as followed:
        yield followed if wanted.follow else _kept(engine, key, wanted.after)


async def _kept(engine: Engine, key: tuple[str, str], after: int) -> AsyncGenerator[Frame, None]:
    while found := await engine.store.events.after(key, after):
        for event in found:
            yield _frame(event)
        after = found[-1].seq
    yield Frame(Kind.END, b"{}")


async def _followed(
    engine: Engine, key: tuple[str, str], after: int
) -> AsyncGenerator[Frame, None]:
    yield Frame(Kind.HEARTBEAT, b"")  # the answer begins, whether anything happens or not
    async with aclosing(engine.store.events.follow(key, after)) as events:
        while True:
            waiting = asyncio.ensure_future(anext(events))
            try:
                while not (await asyncio.wait([waiting], timeout=HEARTBEAT_INTERVAL))[0]:
                    yield Frame(Kind.HEARTBEAT, b"")
                yield _frame(waiting.result())
            finally:
                waiting.cancel()
                await asyncio.wait([waiting])


def _frame(event: SandboxEvent) -> Frame:
    return Frame(Kind.EVENT, msgspec.json.encode(event))


async def pool_stats(engine: Engine, request: Request, wanted: Empty) -> PoolStats:
    """Tell what the warm pool has."""
    return engine.pool_stats()


async def prime_pool(engine: Engine, request: Request, wanted: Prime) -> PoolStats:
    """Fill the warm pool."""
    await engine.pool.prime(wanted)
    return engine.pool_stats()


async def shutdown_pool(engine: Engine, request: Request, wanted: Empty) -> PoolStats:
    """Empty the warm pool."""
    await engine.pool.shutdown()
    return engine.pool_stats()
