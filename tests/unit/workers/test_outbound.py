from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar

import pytest

from atoll.errors import MethodFailedError, MethodNotFoundError
from atoll.sdk._async.sandbox import Sandbox
from atoll.wire import values
from atoll.wire.objects import MAX_OUTBOUND_BODY, Delivery
from atoll.workers import outbound
from atoll.workers.http import Request, Response


async def limited(request: Request, env: Any, ctx: outbound.OutboundContext) -> Response:
    text = f"{ctx.sandbox_id} {ctx.class_name} {ctx.params} {env} {await request.text()}"
    return Response(text, status=429, headers={"retry-after": "1"})


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield bytes(1 << 20)


class Box(Sandbox):
    outbound = staticmethod(lambda request: request)
    outbound_by_host: ClassVar[Any] = {"api.test": lambda: Response("by host")}
    outbound_handlers: ClassVar[Any] = {
        "limited": limited,
        "raises": lambda request: 1 / 0,
        "nothing": lambda request: None,
        "changed": lambda request: Request("http://b.test/", method="PUT", body=b"new"),
        "large": lambda request: Response(bytes(MAX_OUTBOUND_BODY + 1)),
        "endless": lambda request: Response(endless()),
        "forwarded": lambda request: Request("http://b.test/", body=endless()),
        "signed": lambda request: Request(request, headers={**request.headers, "x": "y"}),
        "binary": lambda request: Response(b"\x00\xff"),
    }


def delivery(table: str, name: str, params: Any = None) -> Delivery:
    asked = {"url": "http://a.test/p", "method": "POST", "headers": [["a", "b"]], "body": b"body"}
    args = [values.encode(argument) for argument in (name, params, asked)]
    return Delivery(call="c", key="", kind="outbound", id="box", method=table, args=args)


async def run(table: str, name: str = "", params: Any = None) -> dict[str, Any]:
    found: dict[str, Any] = values.decode(
        await outbound.run(Box, delivery(table, name, params), "env")
    )
    return found


async def test_a_handler_gets_the_request_the_bindings_and_its_context() -> None:
    told = await run("outbound_handlers", "limited", {"rate": 3})
    assert (told["status"], told["body"]) == (429, b"box Box {'rate': 3} env body")
    assert ["retry-after", "1"] in told["headers"]


async def test_a_handler_may_take_fewer_arguments() -> None:
    assert (await run("outbound_by_host", "api.test"))["body"] == b"by host"


async def test_a_request_that_is_returned_is_let_out_with_its_body() -> None:
    told = await run("outbound")
    assert (told["url"], told["method"]) == ("http://a.test/p", "POST")
    assert (told["body"], told["headers"]) == (b"body", [["a", "b"]])
    changed = await run("outbound_handlers", "changed")
    assert (changed["url"], changed["method"], changed["body"]) == ("http://b.test/", "PUT", b"new")


async def test_a_request_made_of_the_one_it_got_has_its_body() -> None:
    told = await run("outbound_handlers", "signed")
    assert (told["url"], told["method"], told["body"]) == ("http://a.test/p", "POST", b"body")
    assert told["headers"] == [["a", "b"], ["x", "y"]]


async def test_bytes_stay_bytes() -> None:
    assert (await run("outbound_handlers", "binary"))["body"] == b"\x00\xff"


@pytest.mark.parametrize("name", ["raises", "nothing"])
async def test_what_is_no_answer_is_an_error(name: str) -> None:
    with pytest.raises(MethodFailedError):
        await run("outbound_handlers", name)


@pytest.mark.parametrize("name", ["large", "endless", "forwarded"])
async def test_a_body_that_is_too_large_is_told_before_it_is_sent(name: str) -> None:
    with pytest.raises(MethodFailedError, match="8388608 bytes"):
        await run("outbound_handlers", name)


@pytest.mark.parametrize(
    ("table", "name"),
    [("outbound_handlers", "none"), ("outbound_by_host", "b.test"), ("exec", ""), ("__init__", "")],
)
async def test_only_handlers_are_called(table: str, name: str) -> None:
    with pytest.raises(MethodNotFoundError):
        await run(table, name)


def test_the_engine_is_told_their_names() -> None:
    assert outbound.names(Box, "outbound_by_host") == ["api.test"]
    assert outbound.has_catch_all(Box)
    assert not outbound.has_catch_all(Sandbox)
    assert outbound.names(Sandbox, "outbound_handlers") == []


@pytest.mark.parametrize("wrong", [["a"], {"a": 1}, {1: print}])
def test_what_is_no_table_of_handlers_is_refused(wrong: Any) -> None:
    made: Callable[..., Any] = type
    cls = made("Wrong", (Sandbox,), {"outbound_handlers": wrong, "outbound": 1})
    with pytest.raises(TypeError):
        outbound.names(cls, "outbound_handlers")
    with pytest.raises(TypeError):
        outbound.has_catch_all(cls)
