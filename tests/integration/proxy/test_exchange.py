"""One request and its answer, where the two sides do not keep the usual order."""

import asyncio
from typing import TypeAlias

from integration.proxy.sites import OK, answering, get, world

POST = "POST / HTTP/1.1\r\nHost: 8080-box-tok.localhost\r\n"
Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter


async def test_a_connection_to_the_server_is_kept_for_one_visitor_alone() -> None:
    async with world(answering()) as here:
        first, second = await here.visit(get()), await here.visit(get())
        for talk in (first, second):
            await talk.until(b"ok")
            talk.send(get())
            await talk.until(b"ok")
        assert here.place.dialled == 2


async def test_a_request_that_may_be_repeated_is_when_the_server_hung_up_meanwhile() -> None:
    answered = 0

    async def serve(reader: Reader, writer: Writer) -> None:
        nonlocal answered
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        answered += 1
        await reader.readuntil(b"\r\n\r\n")  # hangs up without a word

    async with world(serve) as here:
        talk = await here.visit(get())
        await talk.until(b"ok")
        talk.send(get())
        await talk.until(b"ok")
        assert (answered, here.place.dialled) == (2, 2)


async def test_a_request_that_may_not_be_repeated_gets_a_connection_of_its_own() -> None:
    seen = []

    async def serve(reader: Reader, writer: Writer) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            seen.append((head.split()[0], writer))
            writer.write(OK)

    async with world(serve) as here:
        talk = await here.visit(get())
        await talk.until(b"ok")
        talk.send(POST + "Content-Length: 0\r\n\r\n")
        await talk.until(b"ok")
        assert [method for method, _ in seen] == [b"GET", b"POST"]
        assert seen[0][1] is not seen[1][1]


async def test_a_request_that_was_sent_is_never_sent_twice() -> None:
    posts = 0

    async def serve(reader: Reader, writer: Writer) -> None:
        nonlocal posts
        await reader.readuntil(b"\r\n\r\n")
        posts += 1

    async with world(serve) as here:
        talk = await here.visit(POST + "Content-Length: 0\r\nConnection: close\r\n\r\n")
        assert b"502 Bad Gateway" in await talk.rest()
        assert posts == 1


async def test_an_answer_before_the_end_of_the_request_ends_the_connection() -> None:
    async def serve(reader: Reader, writer: Writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")

    async with world(serve) as here:
        talk = await here.visit(POST + "Content-Length: 1000\r\n\r\nbegin")
        assert b"HTTP/1.1 413 Too Large" in await talk.rest()


async def test_the_server_says_when_a_body_may_come() -> None:
    async def serve(reader: Reader, writer: Writer) -> None:
        assert b"100-continue" in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await reader.readexactly(3)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n" + body)

    async with world(serve) as here:
        talk = await here.visit(POST + "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        await talk.until(b"HTTP/1.1 100 Continue\r\n\r\n")
        talk.send("abc")
        await talk.until(b"abc")


async def test_a_malformed_body_is_refused_and_never_reaches_the_server_whole() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def serve(reader: Reader, writer: Writer) -> None:
        await reader.readuntil(b"abc")
        begun.set()
        try:
            await reader.read()
        finally:
            ended.set()

    async with world(serve) as here, asyncio.timeout(20):
        talk = await here.visit(POST + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await begun.wait()
        talk.send("zz\r\n")
        assert b"HTTP/1.1 400 Bad Request" in await talk.rest()
        await ended.wait()


async def test_chunks_and_trailers_of_a_request_arrive() -> None:
    found = asyncio.get_running_loop().create_future()

    async def serve(reader: Reader, writer: Writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        found.set_result(await reader.readuntil(b"X-Sum: 3\r\n\r\n"))
        writer.write(OK)

    async with world(serve) as here:
        head = POST + "Transfer-Encoding: chunked\r\n\r\n"
        talk = await here.visit(head + "3\r\nabc\r\n0\r\nX-Sum: 3\r\n\r\n")
        await talk.until(b"ok")
        assert found.result() == b"3\r\nabc\r\n0\r\nX-Sum: 3\r\n\r\n"


async def test_a_protocol_that_nobody_asked_for_is_a_bad_gateway() -> None:
    async with world(answering(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n")) as here:
        assert b"502 Bad Gateway" in await here.ask()


async def test_a_visitor_who_is_refused_a_websocket_may_ask_again() -> None:
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
    async with world(answering()) as here:
        talk = await here.visit(get("/", upgrade))
        await talk.until(b"ok")
        talk.send(get())
        await talk.until(b"ok")


async def test_the_sandbox_is_held_awake_while_an_answer_is_awaited() -> None:
    async with world(answering()) as here:
        await here.ask()
        assert here.place.awaited == 1


async def test_a_visitor_who_does_not_read_holds_back_the_server() -> None:
    sent = 0

    async def serve(reader: Reader, writer: Writer) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while sent < 1 << 28:
            writer.write(bytes(1 << 20))
            await writer.drain()
            sent += 1 << 20

    async with world(serve) as here:
        talk = await here.visit(get())
        await talk.until(b"\r\n\r\n")
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.3)
        assert sent < 1 << 26  # buffers of the kernel, and a little of ours


async def test_early_answers_without_end_are_a_bad_gateway() -> None:
    async def serve(reader: Reader, writer: Writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0)

    async with world(serve) as here:
        talk = await here.visit(get())
        assert (await talk.until(b" 50")).count(b" 103 ") <= 32
