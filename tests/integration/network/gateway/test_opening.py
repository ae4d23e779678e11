import asyncio
import time

import pytest

from atoll.network.gateway import opening
from integration.network.gateway.harness import Harness, policy

GET = b"GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"


@pytest.fixture(autouse=True)
def _good(gateway: Harness) -> None:
    gateway.put(policy(allowed=("good.test",)))
    gateway.name("good.test", "127.0.0.1")


class Server:
    """Answers each time that what it was sent ends with *ending*; upper case unless told."""

    def __init__(self, ending: bytes, answer: bytes = b"") -> None:
        self.ending, self.answer = ending, answer
        self.got: list[bytearray] = []
        self.met = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got = bytearray()
        self.got.append(got)
        while data := await reader.read(1_000):
            got += data
            self.met.set()
            if got.endswith(self.ending):
                writer.write(self.answer or data.upper())
        writer.close()


async def test_a_letter_is_answered_in_a_moment_and_what_follows_in_order(gateway: Harness) -> None:
    """It may be the beginning of a request, and the protocol may wait for its answer."""
    port = await gateway.server(Server(b""))
    await gateway.addresses("good.test")
    reader, writer = await gateway.connect("127.0.0.1", port)
    begun = time.monotonic()
    writer.write(b"a")
    assert await reader.readexactly(1) == b"A"
    assert time.monotonic() - begun < opening.FIRST_BYTES / 2
    writer.write(b"get / http/1.1\n")
    assert await reader.readexactly(15) == b"GET / HTTP/1.1\n"
    writer.close()
    told = await gateway.last("tcp")
    assert (told.verdict, told.bytes_up, told.bytes_down) == ("allowed", 16, 16)


@pytest.mark.parametrize("first", [b"G", b"GET / HT", b"\r\n"])
@pytest.mark.parametrize(
    ("host", "status"), [(b"good.test", b"HTTP/1.1 204 "), (b"evil.test", b"HTTP/1.1 520 ")]
)
async def test_a_request_in_pieces_is_a_request(
    gateway: Harness, monkeypatch: pytest.MonkeyPatch, first: bytes, host: bytes, status: bytes
) -> None:
    monkeypatch.setattr(opening, "QUIET", 0.01)
    server = Server(b"\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n")
    port = await gateway.server(server)
    await gateway.addresses("good.test")
    reader, writer = await gateway.connect("127.0.0.1", port)
    writer.write(first)
    await asyncio.wait_for(server.met.wait(), 10)
    writer.write((GET % host).removeprefix(first))
    answer = await asyncio.wait_for(reader.read(), 10)
    assert answer.startswith(status)
    assert server.got[0] == first
    assert len(server.got) == (2 if host == b"good.test" else 1)
    writer.close()


async def test_a_word_and_an_end_are_passed_on(gateway: Harness) -> None:
    port = await gateway.server(Server(b"stats"))
    await gateway.addresses("good.test")
    reader, writer = await gateway.connect("127.0.0.1", port)
    writer.write(b"stats")
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), 10) == b"STATS"
    writer.close()


async def test_a_server_that_hangs_up_is_hung_up(gateway: Harness) -> None:
    async def gone(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    port = await gateway.server(gone)
    await gateway.addresses("good.test")
    reader, writer = await gateway.connect("127.0.0.1", port)
    writer.write(b"a")
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()


async def test_nothing_is_sent_to_a_server_that_may_not_be_reached(gateway: Harness) -> None:
    server = Server(b"")
    port = await gateway.server(server)  # nobody asked for its name
    reader, writer = await gateway.connect("127.0.0.1", port)
    writer.write(b"a")
    writer.write_eof()
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 10)
    assert server.got == []
    writer.close()
