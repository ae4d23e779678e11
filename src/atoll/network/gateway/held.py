"""Bodies that are held in memory, for handlers: bounded each, by sandbox, and of all sandboxes together.

A client that sends slowly, or does not read, holds them for long: what one sandbox may hold is little
beside what all may. Beyond that a request is refused at once, before its body is read where its
length is known.
"""

import asyncio

from atoll.errors import RateLimitedError
from atoll.host.budget import Share
from atoll.host.messages import Incoming
from atoll.network.gateway.protocol import MAX_BODY
from atoll.wire.http1 import Data, Request

MAX_OF_ONE = 4 * MAX_BODY
"""Bytes of bodies of one sandbox: of its requests and of answers that it has not read."""

MAX_OF_ALL = 128 << 20
"""Likewise of all. Engine and gateway hold each about three times, encoded, while it goes to a Worker."""

TIME = 60.0
"""Seconds that the body of a request may take."""


class Refused(Exception):  # noqa: N818  # an outcome
    """The body is not taken; *status* is for the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def read(incoming: Incoming, share: Share) -> bytes:
    """Return the body of the request whose head was read last; *share* has it then.

    Raises:
        Refused: it is too large or too slow, or there is no room for it.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(TIME):
            async for event in incoming.body():
                if isinstance(event, Data):
                    body += event.data
                    hold(share, max(share.size, len(body)))
    except TimeoutError as error:
        raise Refused(408, f"a handler gets bodies that are there within {TIME:g} s") from error
    return bytes(body)


def expect(request: Request, share: Share) -> None:
    """Hold what *request* says that its body has; raise as `read`."""
    lengths = request.get(b"content-length")
    hold(share, int(lengths[0]) if lengths and not request.chunked else 0)


def hold(share: Share, size: int) -> None:
    """Hold *size* bytes for a body; raise as `read`."""
    if size > MAX_BODY:
        raise Refused(413, f"a handler gets bodies of {MAX_BODY} bytes at most")
    add(share, size - share.size)


def add(share: Share, size: int) -> None:
    """Hold *size* more bytes; raise as `read`."""
    try:
        share.take(size)
    except RateLimitedError as error:
        raise Refused(503, "too many bodies for handlers at once") from error
