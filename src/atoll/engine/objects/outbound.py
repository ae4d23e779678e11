"""Requests of sandboxes that a Worker's outbound handlers answer: from the gateway to the Worker.

Whatever goes wrong is told as a reason, which the gateway refuses the request with.
"""

from typing import Any

import msgspec

from atoll.engine.objects.deliveries import Deliveries, LostError
from atoll.engine.objects.registry import Registry
from atoll.errors import SandboxError
from atoll.network.gateway.protocol import (
    Answered,
    Call,
    Fields,
    Forward,
    HandlerAnswer,
    Unanswered,
)
from atoll.wire import values
from atoll.wire.objects import Delivery


class _Told(msgspec.Struct):
    """What a Worker says that its handler did: an answer has a status, a request a URL."""

    headers: Fields
    body: bytes
    status: int = 0
    method: str = "GET"
    url: str = ""


class Outbound:
    """Has handlers called.

    Args:
        registry: which Worker has a class.
        deliveries: the way to Workers.
        timeout: seconds a handler may take.
    """

    def __init__(self, registry: Registry, deliveries: Deliveries, timeout: float) -> None:
        self._registry = registry
        self._deliveries = deliveries
        self._timeout = timeout

    async def handle(self, call: Call) -> HandlerAnswer:
        """Return what the Worker's handler makes of a request."""
        namespace, _, id = call.key.partition("/")
        known = self._registry.known(namespace)
        if known is None:
            return Unanswered(reason="no Worker has the class of this sandbox")
        delivery = Delivery(
            call="", key="", kind="outbound", namespace=namespace, id=id,
            method=call.handler.table, args=_arguments(call),
        )  # fmt: skip
        try:
            told = await self._deliveries.call(known.project, delivery, self._timeout)
            return _answer(values.decode(told))
        except LostError:
            return Unanswered(reason="the Worker went away")
        except SandboxError as error:
            return Unanswered(reason=str(error))
        except (msgspec.MsgspecError, TypeError, ValueError):
            return Unanswered(reason="the Worker's answer is none")


def _arguments(call: Call) -> list[Any]:
    request = {
        "method": call.method,
        "url": call.url,
        "headers": [list(field) for field in call.headers],
        "body": call.body,
    }
    arguments = (call.handler.name, call.handler.params, request)
    return [values.encode(argument) for argument in arguments]


def _answer(told: Any) -> HandlerAnswer:
    found = msgspec.convert(told, _Told)
    if found.url:
        return Forward(method=found.method, url=found.url, headers=found.headers, body=found.body)
    return Answered(status=found.status, headers=found.headers, body=found.body)
