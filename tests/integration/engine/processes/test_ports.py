import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from atoll.engine.processes.ports import answer, check
from atoll.errors import InvalidPortNumberError, ValidationFailedError
from atoll.network import dial
from atoll.wire.process import WaitForPort

DIRECT = partial(dial.connect, None)


@asynccontextmanager
async def server(reply: bytes, host: str = "127.0.0.1") -> AsyncIterator[tuple[int, list[bytes]]]:
    """Answer every request with *reply*; yield the port and the requests."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            seen.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(reply)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, host, 0) as listening:
        yield listening.sockets[0].getsockname()[1], seen


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_both_loopback_addresses_are_asked(host: str) -> None:
    async with server(b"HTTP/1.1 204 None\r\n\r\n", host) as (port, seen):
        assert await answer(DIRECT, WaitForPort(port=port, path="/ready?x=1")) == 204
    assert seen[0].startswith(b"GET /ready?x=1 HTTP/1.1\r\nHost: localhost:")


@pytest.mark.parametrize(
    ("status", "wanted", "found"),
    [
        (200, (200, 399), 200),
        (404, (200, 399), None),
        (404, (404, 404), 404),
        (503, (200, 599), 503),
    ],
)
async def test_only_a_wanted_status_counts(
    status: int, wanted: tuple[int, int], found: int | None
) -> None:
    async with server(b"HTTP/1.0 %d X\r\n\r\n" % status) as (port, _):
        assert await answer(DIRECT, WaitForPort(port=port, status=wanted)) == found


@pytest.mark.parametrize(
    "reply", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 abc\r\n", b"HTTP/1.1\r\n", b"H" * 99]
)
async def test_what_is_not_http_does_not_answer_but_takes_connections(reply: bytes) -> None:
    async with server(reply) as (port, _):
        assert await answer(DIRECT, WaitForPort(port=port)) is None
        assert await answer(DIRECT, WaitForPort(port=port, mode="tcp")) == 0


async def test_nobody_there_is_no_answer() -> None:
    async with server(b"") as (port, _):
        pass
    for mode in ("http", "tcp"):
        assert await answer(DIRECT, WaitForPort(port=port, mode=mode)) is None


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"port": 0}, InvalidPortNumberError),
        ({"port": 65_536}, InvalidPortNumberError),
        ({"port": 1, "mode": "udp"}, ValidationFailedError),
        ({"port": 1, "path": "x"}, ValidationFailedError),
        ({"port": 1, "path": "/a b"}, ValidationFailedError),
        ({"port": 1, "path": "/\r\nX: y"}, ValidationFailedError),
        ({"port": 1, "path": "/ä"}, ValidationFailedError),
    ],
)
def test_what_can_never_be_answered_is_refused(
    fields: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        check(WaitForPort(**fields))  # type: ignore[arg-type]
