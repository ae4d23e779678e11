"""Sandbox classes over HTTP: Workers that attach and answer, methods, alarms, schedules."""

from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request

from atoll.engine.engine import Engine
from atoll.engine.objects.timers import Timer
from atoll.errors import OperationNotFoundError
from atoll.server import shapes
from atoll.server.answer import Stream
from atoll.wire import ids, objects
from atoll.wire.base import Done, Empty


def _key(request: Request) -> tuple[str, str]:
    namespace, id = request.path_params["namespace"], request.path_params["id"]
    return ids.check_namespace(namespace), ids.check_sandbox_id(id)


async def configure(
    engine: Engine, request: Request, wanted: objects.ProjectConfig
) -> objects.Project:
    """Apply the migrations of a project."""
    return await engine.objects.configure(request.path_params["project"], wanted)


async def attach(engine: Engine, request: Request, wanted: objects.AttachWorker) -> Stream:
    """Hand calls to a Worker process for as long as it reads them."""
    project = request.path_params["project"]
    # Only a program of this machine can use a path of it.
    here = request.client is None
    attachment = await engine.attach_worker(project, wanted)

    async def run(stream: Stream) -> None:
        try:
            await stream.start(200, shapes.NDJSON)
            directory = str(engine.objects.directory) if here else None
            await stream.write(_line(objects.Attached(objects=directory)))
            events: AsyncIterator[objects.WorkerEvent] = attachment.events()
            async for event in events:
                await stream.write(_line(event))
            await stream.end()
        finally:
            engine.objects.deliveries.detach(project, attachment)

    return Stream(run)


def _line(event: objects.WorkerEvent) -> bytes:
    return msgspec.json.encode(event) + b"\n"


async def answer(engine: Engine, request: Request, wanted: objects.Answer) -> Done:
    """Take the outcome of a call."""
    engine.objects.answer(request.path_params["project"], request.path_params["call"], wanted)
    return Done()


async def call(engine: Engine, request: Request, wanted: objects.CallRequest) -> objects.CallResult:
    """Call a method."""
    return objects.CallResult(value=await engine.objects.call(*_key(request), wanted))


async def schedule(
    engine: Engine, request: Request, wanted: objects.ScheduleRequest
) -> objects.Schedule:
    """Call a method later."""
    return _schedule(await engine.objects.schedule(*_key(request), wanted))


async def schedules(engine: Engine, request: Request, wanted: Empty) -> objects.ScheduleList:
    """Return what is scheduled."""
    found = await engine.objects.schedules(_key(request))
    return objects.ScheduleList(schedules=[_schedule(timer) for timer in found])


def _schedule(timer: Timer) -> objects.Schedule:
    return objects.Schedule(
        id=timer.uid, method=timer.method, payload=timer.payload, time=timer.time,
        attempts=timer.attempts,
    )  # fmt: skip


async def cancel_schedule(engine: Engine, request: Request, wanted: Empty) -> Done:
    """Remove a schedule."""
    id = request.path_params["schedule"]
    if not await engine.objects.timers.cancel(_key(request), id):
        raise OperationNotFoundError(f"no schedule {id!r}", context={"schedule": id})
    return Done()


async def set_alarm(engine: Engine, request: Request, wanted: objects.SetAlarm) -> objects.Alarm:
    """Set the alarm."""
    await engine.objects.set_alarm(*_key(request), wanted.at)
    return objects.Alarm(at=wanted.at)


async def get_alarm(engine: Engine, request: Request, wanted: Empty) -> objects.Alarm:
    """Return the alarm."""
    found = await engine.objects.timers.alarm(_key(request))
    return objects.Alarm(at=found.time if found else None)


async def delete_alarm(engine: Engine, request: Request, wanted: Empty) -> Done:
    """Remove the alarm."""
    await engine.objects.timers.delete_alarm(_key(request))
    return Done()
