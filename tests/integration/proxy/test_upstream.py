import asyncio

import pytest

from atoll.errors import ServiceNotRespondingError
from atoll.proxy import upstream
from atoll.proxy.upstream import Server
from atoll.wire.http1 import Data, End, Response, Truncated
from integration.proxy.sites import OK, Place


async def test_a_server_answers_one_request_after_the_other() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as behind:
        server = await Server.connect(Place(behind.sockets[0].getsockname()[1]))
        for _ in range(2):
            server.expect(b"GET")
            await server.channel.write(b"GET / HTTP/1.1\r\n\r\n")
            events = await server.events()
            assert isinstance(events[0], Response)
            assert events[1:] == [Data(b"ok"), End([])]
        assert server.answered == 2 * len(OK)
        with pytest.raises(Truncated):
            await server.events()
        assert not server.usable
        server.close()


async def test_nothing_there_is_a_typed_error() -> None:
    with pytest.raises(ServiceNotRespondingError):
        await Server.connect(Place(1))


@pytest.mark.parametrize(
    ("target", "shown"),
    [(b"/a?b=secret", "/a"), (b"/" + b"a" * 500, "/" + "a" * 199), (b"/\xff", "/ÿ"),
     (b"/.atoll/enter/" + b"k" * 32, "/.atoll/enter")],
)  # fmt: skip
def test_what_the_log_shows_of_a_target(target: bytes, shown: str) -> None:
    assert upstream.visit_path(target) == shown
