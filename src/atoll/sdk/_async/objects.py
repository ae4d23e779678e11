"""Methods of a sandbox class that runs in a Worker: called now, or later."""

from datetime import datetime
from typing import Any

import msgspec

from atoll.sdk import _arguments
from atoll.sdk._async.target import Target
from atoll.wire import ops, values
from atoll.wire.base import Duration, Empty
from atoll.wire.objects import CallRequest, Schedule, ScheduleRequest


class Objects(Target):
    """Calls into the sandbox's class."""

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the sandbox's class and return its result; starts no container.

        In a Worker that has the class, `get_sandbox` returns an object with these methods.

        Args:
            method: its name.
            args: arguments: None, bool, numbers, text, bytes, dates, lists, tuples, sets,
                dictionaries, and results of this SDK.
            kwargs: likewise, by name.

        Raises:
            MethodNotFoundError: the class has no such method, or the namespace no class.
            WorkerUnavailableError: the Worker does not run.
            MethodFailedError: the method raised; errors of this SDK are raised as they are.
            OperationInterruptedError: the Worker ended meanwhile.
            TimeoutError: it took longer than the engine allows.
            DeadlockError: it would wait for itself.
            ValidationFailedError: an argument or the result is not data.
        """
        request = CallRequest(
            method=method,
            args=[
                values.encode(value, f"argument {number} of {method}")
                for number, value in enumerate(args, start=1)
            ],
            kwargs={
                name: values.encode(value, f"argument {name} of {method}")
                for name, value in kwargs.items()
            },
        )
        return values.decode((await self._call(ops.CALL, request)).value)

    async def schedule(
        self, when: datetime | Duration, method: str, payload: Any = None
    ) -> Schedule:
        """Call a method of the sandbox's class later, at least once, whatever stops meanwhile.

        Args:
            when: a time with a time zone, or how long from now: a number is seconds.
            method: its name; it is called with *payload*.
            payload: as an argument of `call`.

        Raises:
            MethodNotFoundError: the class has no such method.
            ValidationFailedError: a time without a time zone, a delay of more than 10 years,
                or no data.
        """
        at, delay_ms = _arguments.later(when)
        request = ScheduleRequest(
            method=method,
            payload=values.encode(payload, f"the payload of {method}"),
            at=at,
            delay_ms=delay_ms,
        )
        return _decoded(await self._call(ops.ADD_SCHEDULE, request))

    async def list_schedules(self) -> list[Schedule]:
        """Return what is scheduled, the next one first. Wakes nothing."""
        found = await self._call(ops.LIST_SCHEDULES, Empty())
        return [_decoded(schedule) for schedule in found.schedules]

    async def cancel_schedule(self, id: str) -> None:
        """Remove a schedule.

        Raises:
            OperationNotFoundError: there is none with this id; it may have been called.
        """
        await self._call(ops.CANCEL_SCHEDULE, Empty(), more={"schedule": id})


def _decoded(schedule: Schedule) -> Schedule:
    return msgspec.structs.replace(schedule, payload=values.decode(schedule.payload))
