"""Outbound handlers of a sandbox class: functions that answer requests of its sandboxes.

A handler is ``async def handler(request, env, ctx)`` or takes fewer of these. What it returns decides:
a `Response` answers, a `Request` (the one it got, or another) is let out in its place. Anything else,
also an exception, is no answer: the sandbox is then refused, never let out directly.
"""

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any

from atoll.errors import MethodFailedError, MethodNotFoundError
from atoll.sdk._async.sandbox import Sandbox
from atoll.wire import values
from atoll.wire.objects import MAX_OUTBOUND_BODY, Delivery
from atoll.workers.http import Headers, Request, Response

_log = logging.getLogger("atoll.worker")

TABLES = ("outbound_by_host", "outbound_handlers")
"""Attributes that have handlers by name; `outbound` is one by itself."""


class OutboundContext:
    """``ctx`` of a handler.

    Attributes:
        sandbox_id: whose request it is; also `container_id`, the name in 0.12.
        class_name: of its class.
        params: what the handler was chosen with (`set_outbound_handler`), or None.
    """

    def __init__(self, sandbox_id: str, class_name: str, params: Any) -> None:
        self.sandbox_id = self.container_id = sandbox_id
        self.class_name = class_name
        self.params = params


def names(cls: type[Sandbox], table: str) -> list[str]:
    """Return the names in a class's *table* of handlers.

    Raises:
        TypeError: it is no mapping of names to functions.
    """
    found = getattr(cls, table) or {}
    if not isinstance(found, Mapping) or not all(
        isinstance(name, str) and callable(handler) for name, handler in found.items()
    ):
        raise TypeError("it is a mapping of text to functions")
    return list(found)


def called(handler: Any) -> str:
    """Return what a handler is called, for people."""
    return str(getattr(handler, "__name__", "") or type(handler).__name__)


def functions(handlers: Mapping[str, Any]) -> dict[str, str]:
    """Return what the handlers of a table are called."""
    return {name: called(handler) for name, handler in handlers.items()}


def has_catch_all(cls: type[Sandbox]) -> bool:
    """Tell whether a class has a handler for everything; raise `TypeError` where it is none."""
    if cls.outbound is not None and not callable(cls.outbound):
        raise TypeError("it is a function")
    return cls.outbound is not None


async def run(cls: type[Sandbox], delivery: Delivery, env: Any) -> Any:
    """Have the handler that is delivered called; return its encoded answer.

    Raises:
        MethodNotFoundError: the class has no such handler.
        MethodFailedError: it raised, or returned nothing that can be sent.
    """
    table, (name, params, asked) = delivery.method, map(values.decode, delivery.args)
    handler = _find(cls, table, name)
    request = Request(
        asked["url"],
        method=asked["method"],
        headers=Headers([(key, value) for key, value in asked["headers"]]),
        body=asked["body"],
    )
    ctx = OutboundContext(delivery.id, cls.__name__, params)
    try:
        result = handler(*[request, env, ctx][: _arity(handler)])
        result = await result if inspect.isawaitable(result) else result
        return values.encode(await _told(result, asked["body"]), "what the handler returns")
    except Exception as error:
        _log.error("the outbound handler %s raised", name or table, exc_info=error)
        raise MethodFailedError(
            f"the handler raised {type(error).__name__}: {error}",
            context={"method": name or table, "type": type(error).__name__},
        ) from error


def _find(cls: type[Sandbox], table: str, name: str) -> Callable[..., Any]:
    found: Any = None
    if table == "outbound":
        found = cls.outbound
    elif table in TABLES:
        found = (getattr(cls, table) or {}).get(name)
    if not callable(found):
        raise MethodNotFoundError(
            f"the class {cls.__name__} has no outbound handler {name or table!r}",
            context={"method": name or table},
        )
    handler: Callable[..., Any] = found
    return handler


def _arity(handler: Callable[..., Any]) -> int:
    """Return how many of the three arguments a handler takes."""
    for count in (3, 2, 1):
        try:
            inspect.signature(handler).bind(*range(count))
        except TypeError:
            continue
        return count
    return 0


async def _told(result: Any, body: bytes) -> dict[str, Any]:
    """Return a handler's answer as data; a request that is let out unread keeps its body."""
    if isinstance(result, Response):
        told = {"status": result.status, "body": await _whole(result)}
    elif isinstance(result, Request):
        left = body if result.is_read else await _whole(result)
        told = {"method": result.method, "url": str(result.url), "body": left}
    else:
        raise TypeError(f"a handler returns a Response or a Request, not {type(result).__name__}")
    return told | {"headers": [list(field) for field in result.headers.multi_items()]}


async def _whole(message: Request | Response) -> bytes:
    """Return the body, if it can be sent; one that is too large is not read to its end."""
    whole = bytearray()
    async for piece in message.body:
        if len(whole) + len(piece) > MAX_OUTBOUND_BODY:
            raise ValueError(
                f"what a handler returns has {MAX_OUTBOUND_BODY} bytes of body at most"
            )
        whole += piece
    return bytes(whole)
