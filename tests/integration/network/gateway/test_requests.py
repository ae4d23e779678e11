import asyncio
import ssl
from typing import Any

import pytest

from atoll.network.gateway import requests, sandbox
from atoll.network.gateway.protocol import Answered, Call, Forward, HandlerAnswer, Unanswered
from atoll.network.policy import Handler, SandboxPolicy, Secret
from integration.network.gateway.harness import Harness, Web, policy

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
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
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


async def test_a_body_too_large_for_a_handler_is_refused(
    gateway: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MAX_BODY", 10)
    gateway.put(handled())
    (address,) = await gateway.addresses("api.test")
    sent = b"PUT / HTTP/1.1\r\nHost: api.test\r\nContent-Length: 11\r\n\r\n" + b"a" * 11
    assert (await gateway.exchange(address, 80, sent)).startswith(b"HTTP/1.1 413 ")
    assert gateway.calls == []


@pytest.mark.parametrize(("sent", "answered"), [(20, 0), (5, 20)])
async def test_more_bodies_than_are_held_are_refused(
    gateway: Harness, monkeypatch: pytest.MonkeyPatch, sent: int, answered: int
) -> None:
    """Each connection may hold one: a sandbox with thousands must not end the gateway of all."""

    async def handle(call: Call) -> HandlerAnswer:
        return Answered(status=200, headers=[], body=b"a" * answered)

    monkeypatch.setattr(sandbox, "MAX_HELD", 20)
    gateway.handle = handle
    gateway.put(handled())
    (address,) = await gateway.addresses("api.test")
    head = b"PUT / HTTP/1.1\r\nHost: api.test\r\nContent-Length: %d\r\n"
    reader, writer = await gateway.connect(address, 80)
    writer.write(head % 10 + b"\r\n" + b"a")
    while not gateway.shared.room.held:
        await asyncio.sleep(0.01)
    closing = head + b"Connection: close\r\n\r\n"
    refused = await gateway.exchange(address, 80, closing % sent + b"a" * sent)
    assert refused.startswith(b"HTTP/1.1 503 ")
    writer.write(b"a" * 9)
    held_up = 10 + answered > 20
    assert (await reader.readline()).startswith(b"HTTP/1.1 503 " if held_up else b"HTTP/1.1 200 ")
    writer.close()
    while gateway.shared.room.held:
        await asyncio.sleep(0.01)


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
    assert await gateway.exchange(address, 5_432, b"\0") == b""
    told = await gateway.last("tcp")
    assert told.verdict == "refused"
