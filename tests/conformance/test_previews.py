"""What visitors of previews see (semantics "Previews"), with real servers inside."""

import asyncio
import gzip
import hashlib
import json
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import httpx2
import pytest

import atoll
from conformance import servers
from conformance.servers import Visitors, free_port

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"

ANSWERS = {
    b"/redirect": b"HTTP/1.1 302 Found\r\nLocation: /there?x=1\r\nContent-Length: 0\r\n\r\n",
    b"/304": b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n',
    b"/trailers": CHUNKED + b"3\r\nabc\r\n0\r\nX-Sum: 3\r\n\r\n",
    b"/cookies": b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Path=/\r\nSet-Cookie: b=2; HttpOnly\r\n"
    b"Set-Cookie: c=3; Domain=localhost\r\nContent-Length: 0\r\n\r\n",
    b"/gzip": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s"
    % (len(gzip.compress(b"zipped", mtime=0)), gzip.compress(b"zipped", mtime=0)),
    b"/old": b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nto the end",
    b"/cut": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this",
    b"/nonsense": b"SSH-2.0-OpenSSH_9\r\n",
    b"/early": b"HTTP/1.1 103 Early Hints\r\nLink: </s.css>\r\n\r\nHTTP/1.1 200 OK\r\n"
    b"Content-Length: 2\r\n\r\nok",
    b"/smuggled": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n0\r\n\r\n",
    b"*": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
}

APP = """
import asyncio, json, uvicorn
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    path = scope["path"]
    head = {"type": "http.response.start", "status": 200}
    if path == "/events":
        await send(head | {"headers": [(b"content-type", b"text/event-stream")]})
        for number in range(3):
            await send({"type": "http.response.body", "body": b"data: %d\\n\\n" % number,
                        "more_body": True})
            await asyncio.sleep(0.2)
        await send({"type": "http.response.body"})
        return
    import hashlib
    digest, size, more = hashlib.sha256(), 0, True
    while more:
        message = await receive()
        digest.update(message.get("body", b"")); size += len(message.get("body", b""))
        more = message.get("more_body", False)
    if path.startswith("/zeros/"):
        left = int(path[7:])
        await send(head | {"headers": [(b"content-length", b"%d" % left)]})
        block = bytes(range(256)) * 1024
        while left:
            await send({"type": "http.response.body", "body": block[:left], "more_body": True})
            left -= min(left, len(block))
        await send({"type": "http.response.body"})
        return
    told = {"size": size, "sha256": digest.hexdigest(), "path": path, "method": scope["method"],
            "headers": [[n.decode(), v.decode()] for n, v in scope["headers"]]}
    body = json.dumps(told).encode()
    await send(head | {"headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})
uvicorn.run(app, host="HOSTNAME", port=PORT, log_level="warning")
"""

NODE = """
require("http").createServer((req, res) => {
  if (req.url === "/range") {
    res.writeHead(206, {"Content-Range": "bytes 2-4/10", "Content-Length": 3}); res.end("234");
  } else { res.setHeader("X-Host", req.headers.host); res.write("node "); res.end(req.method); }
}).listen(PORT, "::1");
"""


@pytest.fixture
async def visitors(url: str) -> AsyncIterator[Visitors]:
    found = Visitors(url)
    yield found
    await found.close()


@pytest.fixture
async def site(sandbox: atoll.Sandbox) -> str:
    """Address of a server that answers by `ANSWERS`."""
    port = free_port()
    await servers.answering(sandbox, ANSWERS, port)
    return (await sandbox.expose_port(port, hostname="localhost")).url


async def app(sandbox: atoll.Sandbox, hostname: str = "127.0.0.1") -> str:
    """Start uvicorn with `APP`; return its address."""
    port = free_port()
    await servers.install(sandbox, "uvicorn", "h11", "click")
    await servers.python(sandbox, APP.replace("HOSTNAME", hostname), port)
    return (await sandbox.expose_port(port, hostname="localhost")).url


async def test_answers_pass_untouched(site: str, visitors: Visitors) -> None:
    redirect = await visitors.get(f"{site}/redirect")
    assert (redirect.status_code, redirect.headers["location"]) == (302, "/there?x=1")
    unchanged = await visitors.get(f"{site}/304", headers={"if-none-match": '"x"'})
    assert (unchanged.status_code, unchanged.headers["etag"]) == (304, '"x"')
    cookies = (await visitors.get(f"{site}/cookies")).headers.get_list("set-cookie")
    assert cookies == ["a=1; Path=/", "b=2; HttpOnly", "c=3"]
    zipped = await visitors.get(f"{site}/gzip")
    assert (zipped.headers["content-encoding"], zipped.text) == ("gzip", "zipped")


async def test_trailers_and_early_hints_pass(site: str, visitors: Visitors) -> None:
    asked = " HTTP/1.1\r\nHost: HOST\r\nTE: trailers\r\nConnection: close\r\n\r\n"
    found = await visitors.ask(site, "GET /trailers" + asked)
    assert found.endswith(b"3\r\nabc\r\n0\r\nX-Sum: 3\r\n\r\n")
    early = await visitors.ask(site, "GET /early" + asked)
    assert early.index(b"HTTP/1.1 103") < early.index(b"HTTP/1.1 200")


async def test_old_http_both_ways(site: str, visitors: Visitors) -> None:
    new = await visitors.get(f"{site}/old")
    assert (new.headers["transfer-encoding"], new.text) == ("chunked", "to the end")
    old = await visitors.ask(site, "GET /old HTTP/1.0\r\nHost: HOST\r\n\r\n")
    assert old.endswith(b"\r\n\r\nto the end")
    assert b"ransfer-Encoding" not in old
    dechunked = await visitors.ask(site, "GET /trailers HTTP/1.0\r\nHost: HOST\r\n\r\n")
    assert dechunked.endswith(b"\r\n\r\nabc")


async def test_an_answer_that_is_cut_is_seen_to_be(site: str, visitors: Visitors) -> None:
    with pytest.raises(httpx2.RemoteProtocolError):
        await visitors.get(f"{site}/cut")


async def test_what_is_no_proper_answer_is_a_bad_gateway(site: str, visitors: Visitors) -> None:
    for path in ("/nonsense", "/smuggled"):
        answer = await visitors.get(site + path)
        assert (answer.status_code, answer.json()["code"]) == (502, "SERVICE_NOT_RESPONDING")


async def test_nothing_listening_is_a_page_for_browsers_and_json_for_others(
    sandbox: atoll.Sandbox, visitors: Visitors
) -> None:
    url = (await sandbox.expose_port(free_port(), hostname="localhost")).url
    answer = await visitors.get(url)
    assert (answer.status_code, answer.json()["code"]) == (502, "SERVICE_NOT_RESPONDING")
    page = await visitors.get(url, headers={"accept": "text/html"})
    assert page.headers["content-type"].startswith("text/html")
    assert "does not answer" in page.text


async def test_requests_that_are_sent_ahead_are_answered_in_order(
    site: str, visitors: Visitors
) -> None:
    one, last = "GET /redirect HTTP/1.1\r\nHost: HOST\r\n\r\n", "GET /x HTTP/1.1\r\nHost: HOST\r\n"
    found = await visitors.ask(site, one * 3 + last + "Connection: close\r\n\r\n")
    assert found.count(b"HTTP/1.1 302") == 3
    assert found.endswith(b"ok")


SMUGGLED = [
    "POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabc",
    "GET / HTTP/1.1\r\nHost: HOST\r\nX: a\r\n b\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: HOST\r\nHost: localhost\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: localhost\r\nHost: HOST\r\n\r\n",
    "GET http://localhost/v2/version HTTP/1.1\r\nHost: HOST\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
    "CONNECT localhost:80 HTTP/1.1\r\nHost: HOST\r\n\r\n",
]


async def test_smuggling_is_refused(site: str, visitors: Visitors) -> None:
    for smuggled in SMUGGLED:
        found = await visitors.ask(site, smuggled)
        assert int(found.split()[1]) in {400, 405, 421}, smuggled
        assert found.count(b"HTTP/1.1 ") == 1


async def test_previews_never_serve_the_api(site: str, visitors: Visitors) -> None:
    for path in ("/v2/version", "/v1/openapi.json", "/mcp", "/console", "/metrics", "/health"):
        assert (await visitors.get(site + path)).text == "ok"


async def test_a_host_name_is_compared_as_dns_does(site: str, visitors: Visitors) -> None:
    host = urlsplit(site).netloc.upper() + "."
    assert (await visitors.get(site, headers={"host": host})).text == "ok"


async def test_one_connection_may_ask_for_previews_and_the_api_in_turn(
    site: str, visitors: Visitors
) -> None:
    connection = await visitors.raw(site, "")
    for host, end in ((urlsplit(site).netloc, b"\r\n\r\n"), ("localhost", b'"ok":true}')) * 3:
        path = "/redirect" if end == b"\r\n\r\n" else "/health"
        connection.writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert b"302" in await connection.until(end) or path == "/health"
    connection.writer.close()


async def test_the_server_is_told_who_visits_and_by_which_name(
    sandbox: atoll.Sandbox, visitors: Visitors
) -> None:
    url = await app(sandbox)
    told = (await visitors.get(f"{url}/a?b", headers={"x-sandbox-name": "evil"})).json()
    headers = dict(told["headers"])
    port = urlsplit(url).netloc.split("-")[0]
    assert headers["host"] == f"localhost:{port}"
    assert headers["x-forwarded-host"] == urlsplit(url).netloc
    assert headers["x-forwarded-proto"] == "http"
    assert headers["x-original-url"] == f"{url}/a?b"
    assert headers["x-sandbox-name"] == sandbox.id


async def test_bodies_stream_both_ways(sandbox: atoll.Sandbox, visitors: Visitors) -> None:
    url = await app(sandbox)
    block = bytes(range(256)) * 1_024

    async def body() -> AsyncIterator[bytes]:
        for _ in range(80):
            yield block

    sent = (await visitors.http.post(url, content=body())).json()
    assert sent["size"] == 80 * len(block)
    assert sent["sha256"] == hashlib.sha256(block * 80).hexdigest()
    found = await visitors.get(f"{url}/zeros/{80 * len(block)}")
    assert hashlib.sha256(found.content).hexdigest() == sent["sha256"]
    head = await visitors.http.head(url)
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_gigabyte_up_and_down(sandbox: atoll.Sandbox, visitors: Visitors) -> None:
    url, size = await app(sandbox), 1 << 30
    block = bytes(range(256)) * 1_024

    async def body() -> AsyncIterator[bytes]:
        for _ in range(size // len(block)):
            yield block

    sent = (await visitors.http.put(url, content=body(), timeout=300)).json()
    digest, got = hashlib.sha256(), 0
    async with visitors.http.stream("GET", f"{url}/zeros/{size}", timeout=300) as answer:
        async for chunk in answer.aiter_raw():
            digest.update(chunk)
            got += len(chunk)
    assert (sent["size"], got) == (size, size)
    assert sent["sha256"] == digest.hexdigest()


async def test_events_arrive_when_they_are_sent(sandbox: atoll.Sandbox, visitors: Visitors) -> None:
    url, loop = await app(sandbox), asyncio.get_running_loop()
    async with visitors.http.stream("GET", f"{url}/events") as answer:
        times = [loop.time() async for _ in answer.aiter_raw()]
    assert times[-1] - times[0] > 0.3


async def test_a_visitor_who_leaves_is_noticed_by_the_server(
    sandbox: atoll.Sandbox, visitors: Visitors
) -> None:
    port = free_port()
    source = """
import asyncio
async def serve(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    open("/tmp/came-PORT", "w").close()
    await reader.read()
    open("/tmp/left-PORT", "w").close()
async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", PORT):
        await asyncio.Event().wait()
asyncio.run(main())
"""
    await servers.python(sandbox, source, port)
    url = (await sandbox.expose_port(port, hostname="localhost")).url
    connection = await visitors.raw(url, "GET / HTTP/1.1\r\nHost: HOST\r\n\r\n")
    async with asyncio.timeout(20):
        while not await sandbox.exists(f"/tmp/came-{port}"):
            await asyncio.sleep(0.05)
    connection.writer.close()
    async with asyncio.timeout(20):
        while not await sandbox.exists(f"/tmp/left-{port}"):
            await asyncio.sleep(0.05)


@pytest.mark.container
async def test_node_on_ipv6_loopback(sandbox: atoll.Sandbox, visitors: Visitors) -> None:
    port = free_port()
    await sandbox.write_file("/tmp/server.js", NODE.replace("PORT", str(port)))
    await servers.ready(sandbox, await sandbox.start_process(["node", "/tmp/server.js"]), port)
    url = (await sandbox.expose_port(port, hostname="localhost")).url
    answer = await visitors.http.put(url, content=b"x")
    assert (answer.text, answer.headers["x-host"]) == ("node PUT", f"localhost:{port}")
    part = await visitors.get(f"{url}/range", headers={"range": "bytes=2-4"})
    assert (part.status_code, part.text) == (206, "234")


async def test_services_on_all_addresses(sandbox: atoll.Sandbox, visitors: Visitors) -> None:
    for hostname in ("0.0.0.0", "::"):
        url = await app(sandbox, hostname)
        assert (await visitors.get(f"{url}/x")).json()["path"] == "/x"


async def test_private_previews_take_a_header(
    site: str, sandbox: atoll.Sandbox, visitors: Visitors
) -> None:
    port = int(urlsplit(site).netloc.split("-")[0])
    exposed = await sandbox.expose_port(port, hostname="localhost", auth="bearer")
    assert exposed.url == site
    refused = await visitors.get(site)
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    by_header = {"authorization": f"Bearer {exposed.secret}"}
    assert (await visitors.get(site, headers=by_header)).text == "ok"
    await sandbox.expose_port(port, hostname="localhost", public=True)
    assert (await visitors.get(site)).text == "ok"


async def test_private_previews_take_a_link_once_and_then_a_cookie(
    sandbox: atoll.Sandbox, visitors: Visitors
) -> None:
    url = await app(sandbox)
    port = int(urlsplit(url).netloc.split("-")[0])
    await sandbox.expose_port(port, hostname="localhost", auth="cookie")
    link = await sandbox.preview_link(port)
    entered = await visitors.get(link.url)
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    cookie = entered.headers["set-cookie"].partition(";")[0]
    visitors.http.cookies.clear()
    told = (await visitors.get(url, headers={"cookie": f"mine=1; {cookie}"})).json()
    assert dict(told["headers"])["cookie"] == "mine=1"
    assert (await visitors.get(link.url)).status_code == 401
    assert (await visitors.get(url)).status_code == 401
    log = [(visit.path, visit.status) for visit in await sandbox.preview_log(port)]
    assert log[-1] == ("/", 401)
    assert ("/", 200) in log
    assert not any(link.url.rpartition("/")[2] in path for path, _ in log)


async def test_who_guesses_is_slowed_down_and_hurts_nobody_else(
    site: str, sandbox: atoll.Sandbox, visitors: Visitors
) -> None:
    wrong = site.replace("http://", "http://").rpartition("-")[0] + "-wrong.localhost"
    by = {"x-forwarded-for": "203.0.113.9"}
    statuses = [(await visitors.get(wrong, headers=by)).status_code for _ in range(25)]
    assert statuses[:20] == [404] * 20
    assert statuses[-1] == 429
    assert (await visitors.get(site, headers={"x-forwarded-for": "203.0.113.10"})).text == "ok"


async def test_json_for_programs_is_the_envelope(visitors: Visitors) -> None:
    answer = await visitors.get("http://8080-nobody-token.localhost/")
    assert answer.status_code == 404
    assert set(json.loads(answer.text)) >= {"code", "message", "context", "httpStatus", "requestId"}
