"""What callers ask about the network of a sandbox: its policy, and what was decided by it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from starlette.requests import Request

from atoll.engine.egress import control, effective
from atoll.engine.egress.logs import LogReader
from atoll.engine.engine import Engine
from atoll.errors import SandboxNotFoundError
from atoll.server import addressed, answer, shapes
from atoll.server.answer import Stream
from atoll.wire.agent import HEARTBEAT_INTERVAL
from atoll.wire.base import Empty
from atoll.wire.egress import ChangeNetwork, NetworkLogQuery, NetworkPolicy
from atoll.wire.frames import Frame, Kind

PAUSE = 0.3
"""Seconds between two looks at a log that is followed."""


async def change(engine: Engine, request: Request, wanted: ChangeNetwork) -> NetworkPolicy:
    """Change what a sandbox may reach."""
    return await control.change(addressed.sandbox(engine, request), wanted)


async def policy(engine: Engine, request: Request, wanted: Empty) -> NetworkPolicy:
    """Tell what a sandbox may reach."""
    box = addressed.sandbox(engine, request)
    await engine.info(box.namespace, box.id)
    return effective.shown(control.policy(box))


async def log(engine: Engine, request: Request, wanted: NetworkLogQuery) -> Stream:
    """Answer with what was decided, and with what is."""
    box = addressed.sandbox(engine, request)
    if not wanted.follow and await box.load() is None:
        raise SandboxNotFoundError(f"no sandbox {box.id!r}", context={"sandbox": box.id})
    reader = control.log_reader(box, wanted.after)
    id: str = request.scope["request_id"]
    form = shapes.event_form(request.headers.get("accept", ""), id)
    source = _source(reader, follow=wanted.follow)
    return Stream(lambda stream: answer.pump(source, form, stream, id))


@asynccontextmanager
async def _source(reader: LogReader, *, follow: bool) -> AsyncIterator[AsyncIterator[Frame]]:
    yield _followed(reader) if follow else _kept(reader)


async def _kept(reader: LogReader) -> AsyncGenerator[Frame, None]:
    for frame in await asyncio.to_thread(_frames, reader):
        yield frame
    yield Frame(Kind.END, b"{}")


async def _followed(reader: LogReader) -> AsyncGenerator[Frame, None]:
    yield Frame(Kind.HEARTBEAT, b"")  # the answer begins, whether anything happens or not
    silent = 0.0
    while True:
        found = await asyncio.to_thread(_frames, reader)
        for frame in found:
            yield frame
        silent = 0.0 if found else silent + PAUSE
        if silent >= HEARTBEAT_INTERVAL:
            silent = 0.0
            yield Frame(Kind.HEARTBEAT, b"")
        await asyncio.sleep(PAUSE)


def _frames(reader: LogReader) -> list[Frame]:
    return [Frame(Kind.EVENT, msgspec.json.encode(event)) for event in reader.read()]
