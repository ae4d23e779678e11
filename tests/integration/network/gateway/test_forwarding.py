import asyncio

import pytest

from integration.network.gateway.harness import Harness, policy

GET = b"GET / HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n"


async def answered(gateway: Harness, answer: bytes, sent: bytes = GET) -> bytes:
    """Return what the sandbox gets of a server that answers *answer* and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    gateway.put(policy(allowed=("good.test",)))
    gateway.name("good.test", "127.0.0.1")
    port = await gateway.server(serve)
    await gateway.addresses("good.test")
    return await gateway.exchange("127.0.0.1", port, sent)


async def test_an_answer_that_ends_with_the_connection_is_sent_in_chunks(gateway: Harness) -> None:
    answer = await answered(gateway, b"HTTP/1.1 200 OK\r\n\r\nhello")
    assert b"\r\nTransfer-Encoding: chunked\r\n" in answer
    assert answer.endswith(b"5\r\nhello\r\n0\r\n\r\n")


async def test_an_answer_that_is_cut_is_seen_to_be_cut(gateway: Harness) -> None:
    answer = await answered(
        gateway, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    )
    assert not answer.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 100,
    ],
)
async def test_no_proper_answer_is_502(gateway: Harness, answer: bytes) -> None:
    found = await answered(gateway, answer)
    assert found[found.rindex(b"HTTP/1.1") :].startswith(b"HTTP/1.1 502 ")
    assert (await gateway.last("http")).verdict == "failed"


async def test_early_answers_are_passed_on(gateway: Harness) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    answer = await answered(gateway, early + b"HTTP/1.1 204 No Content\r\n\r\n")
    assert answer.startswith(early)
    assert b"HTTP/1.1 204 " in answer


async def test_a_websocket_goes_through(gateway: Harness) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Upgrade: websocket" in head
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade"
            b"\r\n\r\nfirst"
        )
        writer.write(await reader.readexactly(5))
        writer.close()

    gateway.put(policy(allowed=("good.test",)))
    gateway.name("good.test", "127.0.0.1")
    port = await gateway.server(serve)
    await gateway.addresses("good.test")
    reader, writer = await gateway.connect("127.0.0.1", port)
    writer.write(
        b"GET / HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        b"hello"
    )
    assert (await asyncio.wait_for(reader.read(), 10)).endswith(b"\r\n\r\nfirsthello")
    writer.close()
    told = await gateway.last("http")
    assert (told.status, told.verdict) == (101, "allowed")
