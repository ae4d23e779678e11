from typing import Any, cast

import pytest

from atoll.engine.objects.deliveries import Deliveries, LostError
from atoll.engine.objects.outbound import Outbound
from atoll.engine.objects.registry import Known, Registry
from atoll.errors import MethodFailedError, WorkerUnavailableError
from atoll.network.gateway.protocol import Answered, Call, Forward, Unanswered
from atoll.network.policy import Handler
from atoll.wire import values
from atoll.wire.objects import Delivery, WorkerClass

CALL = Call(
    key="Box/a/b",
    host_ref="r",
    handler=Handler("outbound_handlers", "name", {"p": 1}),
    method="GET",
    url="http://a.test/",
    headers=[("A", "b")],
    body=b"\xff",
)


class Workers:
    """Stands for registry and deliveries: answers with `said`, or raises it."""

    def __init__(self, said: Any) -> None:
        self.said = said
        self.delivered: list[Delivery] = []

    def known(self, namespace: str) -> Known | None:
        cls = WorkerClass(namespace="Box", name="Box")
        return Known(project="p", cls=cls) if namespace == "Box" else None

    async def call(self, project: str, delivery: Delivery, timeout: float) -> Any:
        self.delivered.append(delivery)
        if isinstance(self.said, Exception):
            raise self.said
        return values.encode(self.said)


def outbound(workers: Workers) -> Outbound:
    return Outbound(cast("Registry", workers), cast("Deliveries", workers), 60.0)


async def test_the_worker_gets_the_request_and_its_answer_comes_back() -> None:
    workers = Workers({"status": 201, "headers": [["x", "y"]], "body": b"\x00"})
    answer = await outbound(workers).handle(CALL)
    assert answer == Answered(status=201, headers=[("x", "y")], body=b"\x00")
    (delivery,) = workers.delivered
    assert (delivery.kind, delivery.namespace, delivery.id) == ("outbound", "Box", "a/b")
    name, params, asked = map(values.decode, delivery.args)
    assert (name, params, asked["body"]) == ("name", {"p": 1}, b"\xff")


async def test_a_request_that_is_let_out_comes_back_as_one() -> None:
    workers = Workers({"url": "http://b.test/", "method": "PUT", "headers": [], "body": b"x"})
    answer = await outbound(workers).handle(CALL)
    assert answer == Forward(method="PUT", url="http://b.test/", headers=[], body=b"x")


@pytest.mark.parametrize(
    "said",
    [
        LostError(),
        WorkerUnavailableError("not running"),
        MethodFailedError("raised"),
        None,
        {"status": "x"},
        {"status": 200, "headers": [["only one"]], "body": b""},
    ],
)
async def test_whatever_goes_wrong_is_no_answer(said: Any) -> None:
    assert isinstance(await outbound(Workers(said)).handle(CALL), Unanswered)


async def test_without_a_class_there_is_no_handler() -> None:
    from msgspec.structs import replace

    call = replace(CALL, key="other/a")
    assert isinstance(await outbound(Workers(None)).handle(call), Unanswered)
