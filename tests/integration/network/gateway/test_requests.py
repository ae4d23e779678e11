import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from atoll.network.gateway import held, requests, turns
from atoll.network.gateway.protocol import (
    MAX_BODY,
    Answered,
    Call,
    Forward,
    HandlerAnswer,
    Unanswered,
)
from atoll.network.gateway.sandbox import MAX_CALLS
from atoll.network.policy import Handler, SandboxPolicy, Secret
from atoll.wire.http1 import write_chunk, write_last_chunk
from integration.network.gateway.harness import NEIGHBOUR, Harness, Web, policy

GET = b"GET / HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n"
TWO_LENGTHS = (
    b"POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 3\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
)
HANDLER = Handler(table="outbound_by_host", name="api.test")
KEY = Secret("KEY", "atoll_secret_1", ("good.test",), "the-value")


async def reached(gateway: Harness, in_force: SandboxPolicy, **options: Any) -> Web:
    """Return a server that good.test is the name of, which the sandbox has asked for."""
    gateway.put(in_force)
    gateway.name("good.test", "127.0.0.1")
    web = await gateway.web(**options)
    await gateway.addresses("good.test")
    return web


async def test_a_request_goes_to_the_host_it_names(gateway: Harness) -> None:
    web = await reached(gateway, policy(allowed=("good.test",)))
    sent = b"GET /a?b HTTP/1.1\r\nHost: GOOD.test.\r\nX: y\r\nConnection: close, X\r\n\r\n"
    answer = await gateway.exchange("127.0.0.1", web.port, sent)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"hello")
    assert web.heads == [b"GET /a?b HTTP/1.1\r\nHost: good.test\r\n\r\n"]
    told = await gateway.last("http")
    assert (told.verdict, told.method, told.path, told.status) == ("allowed", "GET", "/a", 200)


@pytest.mark.parametrize(
    "sent",
    [
        GET % b"evil.test",
        GET % b"good.test\0",
        GET % b"good.test@evil.test",
        GET % b"evil.test:80@good.test",
        GET % b"0x7f.1",
        GET % b"2130706433",
        GET % b"[::ffff:127.0.0.1]",
        GET % b"",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: good.test\r\n host: evil.test\r\n\r\n",
        b"GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
        b"GET http://good.test@evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
        b"GET http://good.test\\.evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
        b"GET evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
        b"CONNECT evil.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n",
        b"CONNECT good.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n",
        TWO_LENGTHS,
        b"POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: good.test\r\nA: " + b"a" * 100_000 + b"\r\n\r\n",
    ],
)
async def test_what_names_another_host_or_two_goes_nowhere(gateway: Harness, sent: bytes) -> None:
    web = await reached(gateway, policy(allowed=("good.test",)))
    answer = await gateway.exchange("127.0.0.1", web.port, sent)
    assert answer == b"" or int(answer.split()[1]) >= 400
    assert web.heads == []


@pytest.mark.parametrize("port", [80, 8_080])
@pytest.mark.parametrize("host", ["bücher.test".encode(), "bücher.test".encode("latin-1"), b"\xff"])
async def test_a_host_that_is_no_ascii_is_answered(
    gateway: Harness, host: bytes, port: int
) -> None:
    gateway.put(policy(allowed=("good.test",), class_by_host={"*": HANDLER}))
    answer = await gateway.exchange("127.0.0.1", port, GET % host)
    assert answer.startswith(b"HTTP/1.1 520 ")


@pytest.mark.parametrize("port", [80, 50_051])
async def test_http2_without_tls_is_refused_in_its_own_words(gateway: Harness, port: int) -> None:
    """gRPC calls tell this text; an answer in HTTP/1.1 is a broken frame to them."""
    gateway.put(policy(allowed=("good.test",)))
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    answer = await gateway.exchange("127.0.0.1", port, preface)
    settings, goaway = answer[:9], answer[9:]
    assert settings == bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    assert goaway[3] == 7
    assert goaway[9:17] == bytes(7) + b"\x0d"  # HTTP_1_1_REQUIRED
    assert goaway[17:].startswith(b"atoll-egress: refused: HTTP/2 without TLS")
    assert len(goaway) == 9 + int.from_bytes(goaway[:3], "big")
    assert (await gateway.last("http")).rule == "malformed: HTTP/2 without TLS"


async def test_a_refused_request_is_answered_520_with_the_rule(gateway: Harness) -> None:
    web = await reached(gateway, policy(denied=("good.test",)))
    answer = await gateway.exchange("127.0.0.1", web.port, GET % b"good.test")
    assert answer.startswith(b"HTTP/1.1 520 ")
    assert b"denied_hosts: good.test" in answer
    assert (await gateway.last("http")).verdict == "refused"


async def test_the_second_request_of_a_connection_is_decided_by_itself(gateway: Harness) -> None:
    web = await reached(gateway, policy(allowed=("good.test",)))
    first = b"GET /1 HTTP/1.1\r\nHost: good.test\r\n\r\n"
    answer = await gateway.exchange("127.0.0.1", web.port, first * 2 + GET % b"evil.test")
    assert answer.count(b"HTTP/1.1 200 ") == 2
    assert answer.count(b"HTTP/1.1 520 ") == 1
    assert len(web.heads) == 2


async def test_bodies_go_both_ways_however_they_are_framed(gateway: Harness) -> None:
    web = await reached(gateway, policy(allowed=("good.test",)))
    sent = (
        b"POST /1 HTTP/1.1\r\nHost: good.test\r\nContent-Length: 3\r\n\r\nabc"
        b"POST /2 HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n0\r\n\r\n" + GET % b"good.test"
    )
    answer = await gateway.exchange("127.0.0.1", web.port, sent)
    assert answer.count(b"hello") == 3
    assert web.bodies == [b"abc", b"3\r\nabc\r\n0\r\n\r\n", b""]


async def test_a_slow_head_is_not_waited_for(
    gateway: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "HEAD_TIME", 0.1)
    web = await reached(gateway, policy(allowed=("good.test",)))
    assert await gateway.exchange("127.0.0.1", web.port, b"GET / HTTP/1.1\r\nHost: g") == b""
    assert web.heads == []


async def test_https_is_opened_where_that_is_asked_for(gateway: Harness) -> None:
    opened = policy(allowed=("good.test",), intercept=True)
    web = await reached(gateway, opened, host="good.test")
    answer = await gateway.exchange(
        "127.0.0.1",
        web.port,
        GET % b"good.test",
        ssl=ssl.create_default_context(cadata=gateway.own.certificate),
        server_hostname="good.test",
    )
    assert answer.endswith(b"hello")
    told = await gateway.last("https")
    assert (told.verdict, told.host, told.status) == ("allowed", "good.test", 200)


@pytest.mark.parametrize("listed", [False, True])
async def test_https_to_an_address_is_refused_in_words_or_reaches_it(
    gateway: Harness, listed: bool
) -> None:
    """A client that names an address sends no SNI, and expects a certificate of the address."""
    allowed = ("good.test", "127.0.0.1") if listed else ("good.test",)
    in_force = policy(allowed=allowed, intercept=True)
    web = await reached(gateway, in_force, host="127.0.0.1")
    tls: dict[str, Any] = {"ssl": gateway.trusting(), "server_hostname": "127.0.0.1"}
    answer = await gateway.exchange("127.0.0.1", web.port, GET % b"127.0.0.1", **tls)
    assert answer.startswith(b"HTTP/1.1 200 " if listed else b"HTTP/1.1 520 ")
    assert len(web.heads) == listed


async def test_inside_https_sni_and_host_must_agree(gateway: Harness) -> None:
    opened = policy(allowed=("good.test", "other.test"), intercept=True)
    gateway.name("other.test", "127.0.0.1")
    web = await reached(gateway, opened, host="good.test")
    await gateway.addresses("other.test")
    answer = await gateway.exchange(
        "127.0.0.1",
        web.port,
        GET % b"other.test",
        ssl=gateway.trusting(),
        server_hostname="good.test",
    )
    assert answer.startswith(b"HTTP/1.1 520 ")
    assert (await gateway.last("https")).rule == "sni and host differ"


async def test_a_server_without_a_proper_certificate_gets_no_request(gateway: Harness) -> None:
    opened = policy(allowed=("good.test",), intercept=True)
    web = await reached(gateway, opened, host="wrong.test")
    answer = await gateway.exchange(
        "127.0.0.1",
        web.port,
        GET % b"good.test",
        ssl=gateway.trusting(),
        server_hostname="good.test",
    )
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"certificate" in answer
    assert web.heads == []


async def test_hosts_of_the_bypass_list_stay_closed(gateway: Harness) -> None:
    opened = policy(allowed=("good.test",), intercept=True, bypass=("good.test",))
    web = await reached(gateway, opened, host="good.test")
    answer = await gateway.exchange(
        "127.0.0.1",
        web.port,
        GET % b"good.test",
        ssl=ssl.create_default_context(cadata=gateway.authority.certificate),
        server_hostname="good.test",
    )
    assert answer.endswith(b"hello")


# Secrets


async def test_a_secret_is_put_in_for_its_host(gateway: Harness) -> None:
    web = await reached(gateway, policy(secrets=(KEY,)), host="good.test")
    sent = (
        b"GET /?k=atoll_secret_1 HTTP/1.1\r\nHost: good.test\r\nAuthorization: Bearer "
        b"atoll_secret_1\r\nConnection: close\r\n\r\n"
    )
    answer = await gateway.exchange(
        "127.0.0.1", web.port, sent, ssl=gateway.trusting(), server_hostname="good.test"
    )
    assert answer.endswith(b"hello")
    assert b"GET /?k=the-value HTTP/1.1\r\n" in web.heads[0]
    assert b"Authorization: Bearer the-value\r\n" in web.heads[0]
    for file in gateway.folder.iterdir():
        assert b"the-value" not in file.read_bytes()


async def test_a_placeholder_for_another_host_is_held_back_and_told(gateway: Harness) -> None:
    gateway.put(policy(secrets=(KEY,)))
    gateway.name("evil.test", "127.0.0.1")
    await gateway.addresses("evil.test")
    web = await gateway.web()
    sent = b"GET / HTTP/1.1\r\nHost: evil.test\r\nA: atoll_secret_1\r\n\r\n"
    answer = await gateway.exchange("127.0.0.1", web.port, sent)
    assert answer.startswith(b"HTTP/1.1 520 ")
    assert web.heads == []
    assert (await gateway.last("http")).rule == "secret KEY is not for this host"


async def test_a_secret_does_not_go_out_unencrypted(gateway: Harness) -> None:
    web = await reached(gateway, policy(secrets=(KEY,)))
    sent = b"GET / HTTP/1.1\r\nHost: good.test\r\nA: atoll_secret_1\r\n\r\n"
    assert b" 520 " in await gateway.exchange("127.0.0.1", web.port, sent)
    assert web.heads == []


async def test_the_log_has_no_secrets(gateway: Harness) -> None:
    await reached(gateway, policy(secrets=(KEY,)))
    sent = b"GET /the-value/atoll_secret_1 HTTP/1.1\r\nHost: evil.test\r\n\r\n"
    await gateway.exchange("127.0.0.1", 80, sent)
    assert (await gateway.last("http")).path == "/[secret]/[secret]"


# Handlers


def handled(**fields: Any) -> SandboxPolicy:
    return policy(internet=False, class_by_host={"api.test": HANDLER}, **fields)


async def test_a_handler_answers_for_a_host_that_nobody_knows(gateway: Harness) -> None:
    async def handle(call: Call) -> HandlerAnswer:
        return Answered(status=201, headers=[("X", "y")], body=b"answer to " + call.body)

    gateway.handle = handle
    gateway.put(handled())
    (address,) = await gateway.addresses("api.test")
    sent = (
        b"POST /a?b HTTP/1.1\r\nHost: api.test\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"
    )
    answer = await gateway.exchange(address, 80, sent)
    assert answer.startswith(b"HTTP/1.1 201 ")
    assert b"\r\nX: y\r\n" in answer
    assert answer.endswith(b"answer to abc")
    (call,) = gateway.calls
    assert (call.method, call.url, call.handler) == ("POST", "http://api.test/a?b", HANDLER)
    assert (await gateway.last("http")).verdict == "handled"
    assert gateway.names.asked == []


@pytest.mark.parametrize("how", ["none", "raises"])
async def test_without_a_handlers_answer_nothing_goes_out(gateway: Harness, how: str) -> None:
    async def handle(call: Call) -> HandlerAnswer:
        return Unanswered(reason="it raised ValueError")

    gateway.handle = handle if how == "raises" else gateway.handle
    gateway.put(handled(allowed=("api.test",)))
    gateway.name("api.test", "127.0.0.1")
    web = await gateway.web()
    await gateway.addresses("api.test")
    answer = await gateway.exchange("127.0.0.1", web.port, GET % b"api.test")
    assert answer.startswith(b"HTTP/1.1 520 ")
    assert web.heads == []
    assert (await gateway.last("http")).verdict == "failed"


@pytest.mark.parametrize("forwards", [False, True])
async def test_the_reason_of_a_handler_stays_outside(gateway: Harness, forwards: bool) -> None:
    """An exception's text may have a key in it, and where a handler sends requests is its own affair."""

    async def handle(call: Call) -> HandlerAnswer:
        if forwards:
            return Forward(method="GET", url="http://internal.test/", headers=[])
        return Unanswered(reason="it raised ValueError: Bearer internal.test")

    gateway.handle = handle
    gateway.put(handled())
    (address,) = await gateway.addresses("api.test")
    answer = await gateway.exchange(address, 80, GET % b"api.test")
    assert answer.startswith((b"HTTP/1.1 502 ", b"HTTP/1.1 520 "))
    assert b"internal" not in answer
    told = await gateway.last("http")
    assert told.verdict == "failed"
    assert "internal.test" in told.rule


async def test_a_handler_may_let_the_request_out_changed(gateway: Harness) -> None:
    web = await gateway.web()
    gateway.name("real.test", "127.0.0.1")

    async def handle(call: Call) -> HandlerAnswer:
        headers = [*call.headers, ("X-Added", "1")]
        url = f"http://real.test:{web.port}/changed"
        return Forward(method=call.method, url=url, headers=headers)

    gateway.handle = handle
    gateway.put(handled())
    (address,) = await gateway.addresses("api.test")
    sent = b"PUT / HTTP/1.1\r\nHost: api.test\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"
    answer = await gateway.exchange(address, 80, sent)
    assert answer.endswith(b"hello")
    assert web.heads[0].startswith(b"PUT /changed HTTP/1.1\r\nHost: real.test:%d\r\n" % web.port)
    assert b"X-Added: 1\r\n" in web.heads[0]
    assert web.bodies == [b"hi"]


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1/", "http://private.test/", "http://127.0.66.66/", "gopher://x/", "/a"]
)
async def test_no_handler_opens_what_is_closed(gateway: Harness, url: str) -> None:
    gateway.name("private.test", "169.254.169.254")

    async def handle(call: Call) -> HandlerAnswer:
        return Forward(method="GET", url=url, headers=[])

    gateway.handle = handle
    gateway.put(handled())
    (address,) = await gateway.addresses("api.test")
    answer = await gateway.exchange(address, 80, GET % b"api.test")
    assert int(answer.split()[1]) in {502, 520}


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_too_large_for_a_handler_is_refused(
    gateway: Harness, monkeypatch: pytest.MonkeyPatch, chunked: bool
) -> None:
    """The answer arrives though its sender goes on sending."""
    monkeypatch.setattr(held, "MAX_BODY", 1 << 20)
    gateway.put(handled())
    (address,) = await gateway.addresses("api.test")
    body = b"a" * (9 << 20)
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    sent = b"PUT / HTTP/1.1\r\nHost: api.test\r\n%b\r\n\r\n" % framing
    sent += write_chunk(body) + write_last_chunk([]) if chunked else body
    answer = await gateway.exchange(address, 80, sent)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert answer.endswith(b"at most\n")
    assert gateway.calls == []


PART = b"POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: %d\r\n\r\n" % MAX_BODY + b"a"
WHOLE = b"POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: 1\r\nConnection: close\r\n\r\na"


async def echoed(call: Call) -> HandlerAnswer:
    return Answered(status=200, headers=[], body=call.body)


async def test_bodies_that_one_holds_back_take_no_memory_of_others(gateway: Harness) -> None:
    gateway.handle = echoed
    gateway.put(handled())
    gateway.put(handled(host_ref="near", addresses=(NEIGHBOUR,)))
    (address,) = await gateway.addresses("api.test")
    (near,) = await gateway.addresses("api.test", NEIGHBOUR)
    holding = [await gateway.connect(address, 80) for _ in range(4)]
    for _, writer in holding:
        writer.write(PART)
    answer = b""
    while not answer.startswith(b"HTTP/1.1 503 "):
        answer = await gateway.exchange(address, 80, WHOLE)
    assert b"bodies" in answer
    assert (await gateway.exchange(near, 80, WHOLE, NEIGHBOUR)).startswith(b"HTTP/1.1 200 ")
    for _, writer in holding:
        writer.close()
    while not answer.startswith(b"HTTP/1.1 200 "):
        answer = await gateway.exchange(address, 80, WHOLE)
    assert gateway.shared.bodies.taken == 0


async def test_answers_that_nobody_reads_take_no_memory_of_others(gateway: Harness) -> None:
    async def large(call: Call) -> HandlerAnswer:
        return Answered(status=200, headers=[], body=bytes(MAX_BODY))

    gateway.handle = large
    gateway.put(handled())
    (address,) = await gateway.addresses("api.test")
    holding = [await gateway.connect(address, 80) for _ in range(6)]
    for _, writer in holding:
        writer.write(GET % b"api.test")
    async with asyncio.timeout(20):
        while [one.status for one in gateway.log() if one.protocol == "http"] != [503, 503]:
            await asyncio.sleep(0.01)
    assert gateway.shared.bodies.taken == held.MAX_OF_ONE
    for _, writer in holding:
        writer.transport.abort()
    async with asyncio.timeout(20):
        while gateway.shared.bodies.taken:
            await asyncio.sleep(0.01)


async def test_a_body_that_does_not_come_is_not_waited_for(
    gateway: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "TIME", 0.1)
    gateway.put(handled())
    (address,) = await gateway.addresses("api.test")
    assert (await gateway.exchange(address, 80, PART)).startswith(b"HTTP/1.1 408 ")


@asynccontextmanager
async def hanging_calls(gateway: Harness, count: int) -> AsyncIterator[str]:
    """Have handlers of *count* requests hang for one sandbox; yield the address that another has.

    After the block all of them are answered.
    """
    waiting = asyncio.Event()

    async def handle(call: Call) -> HandlerAnswer:
        if call.host_ref == "box":
            await waiting.wait()
        return Answered(status=200, headers=[])

    gateway.handle = handle
    gateway.put(handled())
    gateway.put(handled(host_ref="near", addresses=(NEIGHBOUR,)))
    (address,) = await gateway.addresses("api.test")
    (near,) = await gateway.addresses("api.test", NEIGHBOUR)
    hanging = [await gateway.connect(address, 80) for _ in range(count)]
    for _, writer in hanging:
        writer.write(GET % b"api.test")
    yield near
    waiting.set()
    for reader, writer in hanging:
        assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_requests_of_one_wait_for_one_another_and_not_those_of_others(
    gateway: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway is one loop: what all connections of a sandbox want in a round, others wait for."""
    monkeypatch.setattr(turns, "AT_ONCE", 2)
    monkeypatch.setattr(turns, "LENGTH", 60)
    async with hanging_calls(gateway, 4) as near:
        assert (await gateway.exchange(near, 80, WHOLE, NEIGHBOUR)).startswith(b"HTTP/1.1 200 ")
        async with asyncio.timeout(20):
            while len(gateway.calls) < 3:
                await asyncio.sleep(0.01)
        assert len([call for call in gateway.calls if call.host_ref == "box"]) == 2


async def test_handlers_that_hang_for_one_are_there_for_another(gateway: Harness) -> None:
    async with hanging_calls(gateway, MAX_CALLS + 8) as near:
        async with asyncio.timeout(20):
            while len(gateway.calls) < MAX_CALLS:
                await asyncio.sleep(0.01)
        assert (await gateway.exchange(near, 80, WHOLE, NEIGHBOUR)).startswith(b"HTTP/1.1 200 ")
        assert len([call for call in gateway.calls if call.host_ref == "box"]) == MAX_CALLS


async def test_a_handler_nobody_waits_for_is_given_up(gateway: Harness) -> None:
    called, given_up = asyncio.Event(), asyncio.Event()

    async def handle(call: Call) -> HandlerAnswer:
        called.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()
        raise AssertionError

    gateway.handle = handle
    gateway.put(handled())
    (address,) = await gateway.addresses("api.test")
    _, writer = await gateway.connect(address, 80)
    writer.write(GET % b"api.test")
    await asyncio.wait_for(called.wait(), 10)
    writer.close()
    await asyncio.wait_for(given_up.wait(), 10)


async def test_the_invented_address_is_of_no_use_without_its_handler(gateway: Harness) -> None:
    gateway.put(handled())
    (address,) = await gateway.addresses("api.test")
    assert await gateway.exchange(address, 5_432, bytes(4)) == b""
    told = await gateway.last("tcp")
    assert told.verdict == "refused"
