import asyncio
import ssl
from contextlib import suppress
from typing import Any

import pytest

from atoll.network.gateway import connection, opening
from atoll.network.policy import Handler
from integration.network.gateway.harness import NEIGHBOUR, Harness, policy

GET = b"GET / HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n"


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


async def test_tls_goes_unopened_to_the_server_that_its_name_was_resolved_to(
    gateway: Harness,
) -> None:
    gateway.put(policy(allowed=("good.test",)))
    gateway.name("good.test", "127.0.0.1")
    web = await gateway.web("good.test")
    assert await gateway.addresses("good.test") == ["127.0.0.1"]
    answer = await gateway.exchange(
        "127.0.0.1",
        web.port,
        GET % b"good.test",
        ssl=ssl.create_default_context(cadata=gateway.authority.certificate),
        server_hostname="good.test",
    )
    assert answer.endswith(b"hello")
    told = await gateway.last("tls")
    assert (told.verdict, told.host, told.rule) == (
        "allowed",
        "good.test",
        "allowed_hosts: good.test",
    )
    assert told.bytes_up > 0
    assert told.bytes_down > 0


async def test_with_nothing_to_decide_the_address_decides_alone(gateway: Harness) -> None:
    """As where the packet filter lets such connections past the gateway."""
    gateway.put(policy())
    port = await gateway.server(echo)
    reader, writer = await gateway.connect("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: nobody.test\r\n\r\n")
    assert (await reader.read(9)).startswith(b"GET")
    gateway.put(policy(denied=("other.test",), version=1))
    with pytest.raises(ConnectionError):
        await reader.read()
    writer.close()
    gateway.put(policy(opened=(), version=2))
    assert await gateway.exchange("127.0.0.1", port, b"hello") == b""
    assert (await gateway.last("tcp")).rule == "private address"


@pytest.mark.parametrize("name", ["evil.test", "127.0.0.1", "GOOD.test.evil.test", None])
async def test_tls_for_another_name_is_reset(gateway: Harness, name: str | None) -> None:
    gateway.put(policy(allowed=("good.test",), denied=("none.test",)))
    gateway.name("good.test", "127.0.0.1")
    web = await gateway.web("good.test")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.raises((ConnectionError, ssl.SSLError)):
        # Resolved only by the neighbour: a pin of another sandbox does not count.
        await gateway.connect(
            "127.0.0.1", web.port, ssl=context, server_hostname=name or "", ssl_handshake_timeout=9
        )
    assert not web.heads
    assert (await gateway.last("tls")).verdict == "refused"


async def test_an_address_counts_only_for_the_sandbox_that_asked(gateway: Harness) -> None:
    gateway.put(policy(allowed=("good.test",)))
    gateway.put(policy(allowed=("good.test",), host_ref="near", addresses=(NEIGHBOUR,)))
    gateway.name("good.test", "127.0.0.1")
    port = await gateway.server(echo)
    await gateway.addresses("good.test", source=NEIGHBOUR)
    assert await gateway.exchange("127.0.0.1", port, b"\0hello") == b""
    assert (await gateway.last("tcp")).rule == "not in allowed_hosts"
    reader, writer = await gateway.connect("127.0.0.1", port, NEIGHBOUR)
    writer.write(b"\0hello")
    assert await reader.readexactly(6) == b"\0hello"
    writer.close()


async def test_a_server_may_speak_first(gateway: Harness) -> None:
    async def ssh(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-server\r\n")
        writer.write(await reader.readline())
        writer.close()

    gateway.put(policy(allowed=("git.test",)))
    gateway.name("git.test", "127.0.0.1")
    port = await gateway.server(ssh)
    await gateway.addresses("git.test")
    reader, writer = await gateway.connect("127.0.0.1", port)
    assert await reader.readline() == b"SSH-2.0-server\r\n"
    writer.write(b"SSH-2.0-client\r\n")
    assert await reader.read() == b"SSH-2.0-client\r\n"
    writer.close()
    told = await gateway.last("tcp")
    assert (told.verdict, told.bytes_up, told.host) == ("allowed", 16, "git.test")


async def test_a_connection_without_a_name_is_logged_under_the_one_asked_for_last(
    gateway: Harness,
) -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    gateway.put(policy(allowed=("*.many.test", "git.test")))
    for name in ("a.many.test", "git.test"):
        gateway.name(name, "127.0.0.1")
        await gateway.addresses(name)
    port = await gateway.server(once)
    assert await gateway.exchange("127.0.0.1", port, b"SSH-2.0-x\r\n") == b"SSH-2.0-x\r\n"
    told = await gateway.last("tcp")
    assert (told.host, told.rule) == ("git.test", "allowed_hosts: git.test")


async def test_silence_does_not_make_a_request_something_else(
    gateway: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "QUIET", 0.01)
    gateway.put(policy(allowed=("good.test",)))
    gateway.name("good.test", "127.0.0.1")
    met = asyncio.Event()
    got = b""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        met.set()
        got += await reader.read(1_000)
        writer.close()

    port = await gateway.server(silent)
    await gateway.addresses("good.test")
    reader, writer = await gateway.connect("127.0.0.1", port)
    await asyncio.wait_for(met.wait(), 10)
    writer.write(GET % b"evil.test")
    answer = await asyncio.wait_for(reader.read(), 10)
    assert answer.startswith(b"HTTP/1.1 520 ")
    assert got == b""
    writer.close()


async def test_silence_is_not_waited_for_without_end(
    gateway: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_BYTES", 0.1)
    gateway.put(policy(allowed=("good.test",)))
    assert await gateway.exchange("127.0.0.1", 8_080, b"GE") == b""
    assert "in time" in (await gateway.last("tcp")).rule


async def test_a_policy_that_changes_cuts_what_it_forbids(gateway: Harness) -> None:
    gateway.put(policy(allowed=("good.test", "other.test")))
    gateway.name("good.test", "127.0.0.1")
    gateway.name("other.test", "127.0.0.2")
    port = await gateway.server(echo, "0.0.0.0")
    await gateway.addresses("good.test")
    await gateway.addresses("other.test")
    good, good_writer = await gateway.connect("127.0.0.1", port)
    other, other_writer = await gateway.connect("127.0.0.2", port)
    for reader, writer in ((good, good_writer), (other, other_writer)):
        writer.write(b"\0")
        assert await reader.readexactly(1) == b"\0"
    gateway.put(policy(allowed=("other.test",), version=1))
    with pytest.raises((ConnectionError, EOFError)):
        await asyncio.wait_for(good.readexactly(1), 10)
    other_writer.write(b"\1")
    assert await other.readexactly(1) == b"\1"
    for writer in (good_writer, other_writer):
        writer.close()
    assert (await gateway.last("tcp")).rule == "cut: the policy changed"


async def test_a_handler_that_comes_cuts_streams_that_go_past_it(gateway: Harness) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegun")
        await reader.read()
        writer.close()

    gateway.put(policy(allowed=("good.test",)))
    gateway.name("good.test", "127.0.0.1")
    port = await gateway.server(endless)
    await gateway.addresses("good.test")
    reader, writer = await gateway.connect("127.0.0.1", port)
    writer.write(GET % b"good.test")
    await asyncio.wait_for(reader.readuntil(b"begun"), 10)
    handler = Handler(table="outbound_handlers", name="h")
    gateway.put(policy(allowed=("good.test",), runtime_all=handler, version=1))
    with suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    assert (await gateway.last("http")).verdict == "failed"


async def test_opened_tls_cuts_what_passes_unopened(gateway: Harness) -> None:
    gateway.put(policy(allowed=("good.test",)))
    gateway.name("good.test", "127.0.0.1")
    web = await gateway.web("good.test")
    await gateway.addresses("good.test")
    tls: dict[str, Any] = {"ssl": gateway.trusting(), "server_hostname": "good.test"}
    reader, writer = await gateway.connect("127.0.0.1", web.port, **tls)
    gateway.put(policy(allowed=("good.test",), intercept=True, version=1))
    with pytest.raises((ConnectionError, EOFError)):
        await asyncio.wait_for(reader.readexactly(1), 10)
    writer.close()
    assert (await gateway.last("tls")).rule == "cut: the policy changed"


async def test_an_encrypted_hello_is_refused(gateway: Harness) -> None:
    from unit.network.gateway.test_clienthello import _Extension, made, named

    gateway.put(policy(allowed=("good.test",)))
    gateway.name("good.test", "127.0.0.1")
    port = await gateway.server(echo)
    await gateway.addresses("good.test")
    hello = made(named(b"good.test"), _Extension(0xFE0D, b"\0"))
    assert await gateway.exchange("127.0.0.1", port, hello) == b""
    assert (await gateway.last("tls")).rule == "encrypted ClientHello"


@pytest.mark.parametrize("data", [b"\x16\x03\x01\0\0", b"\x16\x03\x01\0\x04\x02\0\0\0"])
async def test_what_only_looks_like_tls_goes_nowhere(gateway: Harness, data: bytes) -> None:
    gateway.put(policy(allowed=("good.test",)))
    gateway.name("good.test", "127.0.0.1")
    port = await gateway.server(echo)
    await gateway.addresses("good.test")
    assert await gateway.exchange("127.0.0.1", port, data) == b""


DISGUISED = [b"\x80\x2e\x01\x03\x03\0\x03", b"\x15\x03\x01\0\x02\x01\x5a\x16\x03\x01"]


@pytest.mark.parametrize("data", DISGUISED)
async def test_tls_in_disguise_reaches_no_server(
    gateway: Harness, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    """It names no server that we read: it would pass as a protocol of its own, unopened."""
    monkeypatch.setattr(opening, "QUIET", 0.01)
    gateway.put(policy(allowed=("good.test",), intercept=True))
    gateway.name("good.test", "127.0.0.1")
    begun: asyncio.Queue[bytes] = asyncio.Queue()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun.put_nowait(await reader.read(1))
        begun.put_nowait(await reader.read(100))
        writer.close()

    port = await gateway.server(silent)
    await gateway.addresses("good.test")
    assert await gateway.exchange("127.0.0.1", port, data) == b""
    reader, writer = await gateway.connect("127.0.0.1", port)
    writer.write(data[:1])
    assert await asyncio.wait_for(begun.get(), 10) == data[:1]
    writer.write(data[1:])
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 10)
    assert await asyncio.wait_for(begun.get(), 10) == b""
    writer.close()
    told = await gateway.last("tls")
    assert (told.verdict, told.rule) == ("refused", "TLS without a plain ClientHello")


async def test_a_server_that_is_not_there_is_told_in_the_log(gateway: Harness) -> None:
    gateway.put(policy(allowed=("gone.test",)))
    gateway.name("gone.test", "127.0.0.1")
    await gateway.addresses("gone.test")
    assert await gateway.exchange("127.0.0.1", 1, b"\0") == b""
    told = await gateway.last("tcp")
    assert (told.verdict, told.rule) == ("failed", "Connection refused")


async def test_all_that_a_server_sent_arrives_before_the_end(gateway: Harness) -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.write(b"x" * 3_000_000)
        writer.close()

    gateway.put(policy(allowed=("big.test",)))
    gateway.name("big.test", "127.0.0.1")
    port = await gateway.server(flood)
    await gateway.addresses("big.test")
    assert len(await gateway.exchange("127.0.0.1", port, b"\0")) == 3_000_000
