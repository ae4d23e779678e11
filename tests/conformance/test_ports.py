"""Ports: exposed, told of, revoked (cases W02, W04), and used from the SDK."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import urlsplit

import httpx2
import pytest

import atoll
from atoll.errors import PortAlreadyExposedError, ServiceNotRespondingError
from conformance import servers
from conformance.clients import Client
from conformance.servers import Visitors, free_port

pytestmark = pytest.mark.clients("sync", "http")

HTTP_SERVER = (
    "import http.server; http.server.test(http.server.SimpleHTTPRequestHandler, port=PORT)"
)


@pytest.fixture
async def visitors(url: str) -> AsyncIterator[Visitors]:
    found = Visitors(url)
    yield found
    await found.close()


async def test_the_same_port_twice_has_the_same_address(box: Client, sandbox_id: str) -> None:
    first = await box.expose(8080, hostname="localhost:8787", name="app")
    host = urlsplit(first).netloc
    assert first.startswith("http://")
    assert host.startswith(f"8080-{sandbox_id}-")
    assert host.endswith(".localhost:8787")
    assert await box.expose(8080, hostname="localhost:8787") == first
    assert await box.exposed() == [8080]


async def test_w04_rules_of_ports_tokens_and_domains(box: Client) -> None:
    assert await box.expose(80) == "INVALID_PORT"
    assert await box.expose(3000) == "INVALID_PORT"
    assert await box.expose(70000) == "INVALID_PORT_NUMBER"
    assert await box.expose(8080, hostname="x.workers.dev") == "CUSTOM_DOMAIN_REQUIRED"
    for token in ("a-b", "A", "a" * 17, ""):
        assert await box.expose(8080, token=token) == "VALIDATION_FAILED"
    url = await box.expose(8080, hostname="example.com", token="a_b")
    assert url.startswith("https://")
    assert url.endswith("-a_b.example.com")
    assert await box.expose(8080, hostname="example.com", token="other") == "PORT_ALREADY_EXPOSED"
    assert await box.expose(8081, hostname="example.com", token="a_b") == "PORT_ALREADY_EXPOSED"
    assert await box.exposed() == [8080]


async def test_unexpose_is_idempotent_and_starts_nothing(box: Client) -> None:
    await box.unexpose(8080)
    assert await box.exposed() == []
    await box.expose(8080)
    await box.unexpose(8080)
    await box.unexpose(8080)
    assert await box.exposed() == []


@pytest.mark.parametrize("id", ["MyBox", "under_score", "a.b", "x" * 41])
async def test_w04_ids_that_no_host_name_holds(url: str, id: str) -> None:
    async with atoll.connect(url) as env:
        box = atoll.get_sandbox(env.Sandbox, id)
        with pytest.raises(atoll.errors.InvalidSandboxIdError, match="normalize_id"):
            await box.expose_port(8080)
        with pytest.raises(atoll.errors.SandboxNotFoundError):
            await box.info()  # nothing was started for it


async def test_w04_an_id_with_capitals_is_previewed_when_it_is_normalized(url: str) -> None:
    async with atoll.connect(url) as env:
        box = atoll.get_sandbox(env.Sandbox, "My-Box-W04", normalize_id=True)
        try:
            assert "-my-box-w04-" in (await box.expose_port(8080)).url
        finally:
            await box.destroy()


async def test_tokens_are_checked_only_while_they_forward(sandbox: atoll.Sandbox) -> None:
    await sandbox.expose_port(8080, token="tok")
    assert await sandbox.is_port_exposed(8080)
    assert await sandbox.validate_port_token(8080, "tok")
    assert not await sandbox.validate_port_token(8080, "other")
    assert not await sandbox.validate_port_token(8081, "tok")
    await sandbox.stop()
    assert not await sandbox.is_port_exposed(8080)
    assert not await sandbox.validate_port_token(8080, "tok")
    assert await sandbox.get_exposed_ports() == []
    assert (await sandbox.info()).state == "stopped"


async def test_one_token_one_port_also_of_sandboxes_of_the_same_id(url: str) -> None:
    async with atoll.connect(url) as env:
        boxes = [atoll.get_sandbox(env.namespace(name), "same-id") for name in ("One", "Two")]
        try:
            await boxes[0].expose_port(8080, token="mine")
            with pytest.raises(PortAlreadyExposedError):
                await boxes[1].expose_port(8080, token="mine")
            other = await boxes[1].expose_port(8080)
            assert other.url != (await boxes[0].get_exposed_ports())[0].url
        finally:
            for box in boxes:
                await box.destroy()


async def test_tokens_survive_a_sleep_and_forward_again_when_exposed(
    sandbox: atoll.Sandbox, visitors: Visitors
) -> None:
    port = free_port()
    await servers.python(sandbox, HTTP_SERVER, port)
    exposed = await sandbox.expose_port(port)
    assert (await visitors.get(exposed.url)).status_code == 200
    await sandbox.stop()
    asleep = await visitors.get(exposed.url)
    assert (asleep.status_code, asleep.json()["code"]) == (410, "STALE_PREVIEW_URL")
    assert (await sandbox.info()).state == "stopped"
    await servers.python(sandbox, HTTP_SERVER, port)  # wakes it
    assert (await visitors.get(exposed.url)).status_code == 410
    assert (await sandbox.expose_port(port)).url == exposed.url
    assert (await visitors.get(exposed.url)).status_code == 200


async def test_w02_revoking_cuts_what_is_open_and_old_addresses_stay_dead(
    sandbox: atoll.Sandbox, visitors: Visitors
) -> None:
    port = free_port()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"
    await servers.answering(sandbox, {b"/hold": head, b"*": head}, port)
    exposed = await sandbox.expose_port(port)
    open_ones = [
        await visitors.raw(exposed.url, "GET /hold HTTP/1.1\r\nHost: HOST\r\n\r\n")
        for _ in range(3)
    ]
    for connection in open_ones:
        await connection.until(b"abc")
    await sandbox.unexpose_port(port)
    assert all(await asyncio.gather(*(connection.ended() for connection in open_ones)))
    assert (await visitors.get(exposed.url)).json()["code"] == "INVALID_TOKEN"


async def test_w02_the_address_of_a_destroyed_sandbox_wakes_nothing(
    url: str, visitors: Visitors
) -> None:
    async with atoll.connect(url) as env:
        box = atoll.get_sandbox(env.Sandbox, "w02-destroyed")
        exposed = await box.expose_port(8080)
        await box.destroy()
        assert (await visitors.get(exposed.url)).status_code == 404
        with pytest.raises(atoll.errors.SandboxNotFoundError):
            await box.info()
        await box.exec("true")
        try:
            assert (await visitors.get(exposed.url)).status_code == 404
            assert await box.get_exposed_ports() == []
        finally:
            await box.destroy()


async def test_a_token_of_one_sandbox_is_worth_nothing_at_another(
    sandbox: atoll.Sandbox, url: str, visitors: Visitors
) -> None:
    async with atoll.connect(url) as env:
        other = atoll.get_sandbox(env.Sandbox, "other-token")
        try:
            mine, theirs = await sandbox.expose_port(8080), await other.expose_port(8080)
            tokens = [
                urlsplit(one.url).netloc.split(".")[0].split("-")[-1] for one in (mine, theirs)
            ]
            mixed = theirs.url.replace(tokens[1], tokens[0])
            assert (await visitors.get(mixed)).json()["code"] == "INVALID_TOKEN"
        finally:
            await other.destroy()


async def test_an_address_may_end(sandbox: atoll.Sandbox, visitors: Visitors) -> None:
    port = free_port()
    await servers.python(sandbox, HTTP_SERVER, port)
    exposed = await sandbox.expose_port(port, expires="1h")
    assert exposed.expires_at
    fresh = {"connection": "close"}
    assert (await visitors.get(exposed.url, headers=fresh)).status_code == 200
    await sandbox.expose_port(port, expires=0.01)
    status = None
    while status != 404:
        with suppress(httpx2.RemoteProtocolError):  # the visit during which it ends is cut
            status = (await visitors.get(exposed.url, headers=fresh)).status_code
        await asyncio.sleep(0.01)
    assert not await sandbox.is_port_exposed(port)


async def test_fetch_streams_both_ways_without_an_exposed_port(sandbox: atoll.Sandbox) -> None:
    source = """
import http.server
class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_PUT(self):
        self.send_response(201)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("X-Host", self.headers["Host"])
        self.end_headers()
        while size := int(self.rfile.readline(), 16):
            data = self.rfile.read(size); self.rfile.readline()
            self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(data), data)); self.wfile.flush()
        self.wfile.write(b"0\\r\\n\\r\\n")
    def do_GET(self):
        body = self.path.encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body)))
        self.end_headers(); self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Echo).serve_forever()
"""
    port = free_port()
    await servers.python(sandbox, source, port)

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(50):
            yield bytes([number]) * 20_000

    async with await sandbox.fetch("/put", port=port, method="PUT", body=pieces()) as answer:
        assert (answer.status, answer.ok) == (201, True)
        assert answer.headers["x-host"] == f"localhost:{port}"
        assert await answer.bytes() == b"".join(bytes([n]) * 20_000 for n in range(50))
    answer = await sandbox.container_fetch(f"http://localhost:{port}/a?b=c")
    assert await answer.text() == "/a?b=c"


async def test_fetch_waits_for_a_server_that_is_starting(sandbox: atoll.Sandbox) -> None:
    port = free_port()
    await sandbox.write_file("/tmp/late.py", "import time; time.sleep(1)\n" + HTTP_SERVER.replace(
        "PORT", str(port)))  # fmt: skip
    await sandbox.start_process(["python3", "/tmp/late.py"])
    async with await sandbox.fetch("/", port=port) as answer:
        assert answer.status == 200


async def test_fetch_of_nothing_is_a_typed_error(sandbox: atoll.Sandbox) -> None:
    with pytest.raises(ServiceNotRespondingError):
        await sandbox.fetch("/", port=free_port(), wait=0)


async def test_ports_are_waited_for_and_the_missing_ones_named(sandbox: atoll.Sandbox) -> None:
    there, missing = free_port(), free_port()
    await sandbox.start_process(["python3", "-m", "http.server", str(there), "--bind", "127.0.0.1"])
    await sandbox.start_and_wait_for_ports(there)
    with pytest.raises(ServiceNotRespondingError) as caught:
        await sandbox.start_and_wait_for_ports([there, missing], timeout=0.5)
    assert caught.value.context["missing"] == [missing]
