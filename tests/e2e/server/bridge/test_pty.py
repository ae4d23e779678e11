"""Terminals by the unmodified client of the OpenAI Agents SDK, and by a bare WebSocket."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import httpx2
import pytest
from agents.sandbox.session import SandboxSession

from e2e.server.bridge.conftest import KEY, Node
from integration.server.engines import EngineProcess

HEADERS = {"authorization": f"Bearer {KEY}"}


@pytest.fixture
async def url(http: httpx2.AsyncClient, engine: EngineProcess) -> AsyncIterator[str]:
    """Address of a fresh sandbox."""
    id = (await http.post("/sandbox")).json()["id"]
    yield f"{engine.hello['url']}/v1/sandbox/{id}"
    assert (await http.delete(f"/sandbox/{id}")).status_code == 204


class Terminal:
    """A connection, and all that it has shown."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.shown = bytearray()
        self.told: list[dict[str, object]] = []

    async def type(self, text: str) -> None:
        await self.socket.send_bytes(text.encode())

    async def until(self, pattern: bytes) -> None:
        """Wait for what is at the end, or came with the last message."""
        while not re.search(pattern, self.shown[-65536:]):
            await self.take()

    async def end(self) -> dict[str, object]:
        while not self.socket.closed:
            await self.take()
        return self.told[-1]

    async def take(self) -> None:
        message = await self.socket.receive(30)
        if message.type is aiohttp.WSMsgType.BINARY:
            self.shown += message.data
        elif message.type is aiohttp.WSMsgType.TEXT:
            self.told.append(json.loads(message.data))
        else:
            assert self.socket.closed, message


@asynccontextmanager
async def terminal(url: str, query: str = "") -> AsyncIterator[Terminal]:
    async with (
        aiohttp.ClientSession(headers=HEADERS) as session,
        session.ws_connect(f"{url}/pty{query}", max_msg_size=0) as socket,
    ):
        first = await socket.receive(30)
        assert first.type is aiohttp.WSMsgType.TEXT
        assert json.loads(first.data) == {"type": "ready"}
        yield Terminal(socket)


async def sleeping(http: httpx2.AsyncClient, url: str) -> str:
    """The events of a command that lists the arguments of all `sleep` commands."""
    body = {"argv": ["sh", "-c", "pgrep -xa sleep | cut -d' ' -f3 | grep ."]}
    answer = await http.post(url + "/exec", json=body)
    return answer.text


async def gone(http: httpx2.AsyncClient, url: str) -> None:
    async with asyncio.timeout(20):
        while '{"exit_code":1}' not in await sleeping(http, url):
            await asyncio.sleep(0.1)


async def test_a_program_is_started_written_to_and_ended(box: SandboxSession) -> None:
    started = await box.pty_exec_start("tty && read -r line && echo got-$line", tty=True,
                                       shell=["bash", "-c"], yield_time_s=1)  # fmt: skip
    assert started.process_id is not None
    assert b"/dev/pts/" in started.output
    told = await box.pty_write_stdin(session_id=started.process_id, chars="x y\n", yield_time_s=1)
    assert b"got-x y" in told.output
    ended = await box.pty_write_stdin(session_id=started.process_id, chars="exit 3\n")
    assert (ended.process_id, ended.exit_code) == (None, 3)


async def test_terminating_ends_what_runs_in_the_terminal(box: SandboxSession) -> None:
    await box.pty_exec_start("sleep 12345", tty=True, yield_time_s=0.3)
    while b"12345" not in (await box.exec("pgrep -xa sleep || true")).stdout:
        await asyncio.sleep(0.05)
    await box.pty_terminate_all()
    async with asyncio.timeout(20):
        while b"12345" in (await box.exec("pgrep -xa sleep || true")).stdout:
            await asyncio.sleep(0.05)


async def test_a_terminal_has_its_size_and_takes_another(url: str) -> None:
    async with terminal(url, "?cols=100&rows=40") as found:
        await found.type("stty size\n")
        await found.until(rb"[\r\n]40 100\r")
        await found.socket.send_str('{"type":"resize","cols":90,"rows":30}')
        await found.socket.send_str('{"type":"resize","cols":-1,"rows":0}')
        await found.socket.send_str("no JSON")
        await found.type("sleep 0.3; stty size\n")
        await found.until(rb"[\r\n]30 90\r")


async def test_control_characters_signal(url: str) -> None:
    async with terminal(url) as found:
        await found.type("sleep 600\n")
        await found.until(rb"sleep 600\r")
        await asyncio.sleep(0.3)
        await found.type("\x03")
        await found.type("echo code-$?\n")
        await found.until(rb"[\r\n]code-130\r")


async def test_a_signal_that_ended_the_shell_is_told(url: str) -> None:
    async with terminal(url, "?shell=/bin/sh") as found:
        await found.type("kill -9 $$\n")
        assert await found.end() == {"type": "exit", "code": 137, "signal": "SIGKILL"}


async def test_much_goes_both_ways(url: str) -> None:
    async with terminal(url) as found:
        await found.type("stty raw -echo; echo rea''dy; head -c 65536 | sha256sum; stty sane\n")
        await found.until(rb"ready")
        await found.type("x" * 65536)
        await found.until(rb"[0-9a-f]{64}  -")
        await found.type("head -c 10000000 /dev/zero | tr '\\0' z; echo; echo e''nd\n")
        await found.until(rb"[\r\n]end\r")
        assert found.shown.count(b"z") >= 10_000_000


async def test_the_terminal_of_a_session_outlives_its_connections(
    url: str, http: httpx2.AsyncClient
) -> None:
    async with terminal(url, "?session=s1&cols=80") as first:
        await first.type("cd /tmp; echo ma''rk; sleep 4321 &\n")
        await first.until(rb"[\r\n]mark\r")
    async with (
        terminal(url, "?session=s1&cols=90") as second,
        terminal(url, "?session=s1") as third,
    ):
        await second.until(rb"[\r\n]mark\r")  # what it had shown
        await second.type("pwd; echo a''ll\n")
        await second.until(rb"[\r\n]/tmp\r\nall\r")
        await third.until(rb"[\r\n]/tmp\r\nall\r")
        assert "event: stdout" in await sleeping(http, url)
        await third.type("exit 5\n")
        assert await second.end() == {"type": "exit", "code": 5}
    async with terminal(url, "?session=s1") as fresh:
        await fresh.type("pwd; echo d''one\n")
        await fresh.until(rb"[\r\n]done\r")
        assert b"mark" not in fresh.shown


async def test_a_session_takes_its_terminal_along(url: str, http: httpx2.AsyncClient) -> None:
    async with terminal(url, "?session=s2") as found:
        await found.type("sleep 4321\n")
        await found.until(rb"sleep 4321\r")
        assert (await http.delete(url + "/session/s2")).json()["success"] is True
        assert (await found.end())["type"] == "exit"
    await gone(http, url)


async def test_a_sandbox_takes_its_terminals_along(url: str, http: httpx2.AsyncClient) -> None:
    async with terminal(url) as found:
        assert (await http.delete(url)).status_code == 204
        assert (await found.end())["type"] in {"exit", "error"}


async def test_a_connection_that_breaks_ends_its_terminal(
    url: str, http: httpx2.AsyncClient
) -> None:
    async with terminal(url) as found:
        await found.type("sleep 4321\n")
        await found.until(rb"sleep 4321\r")
        found.socket.get_extra_info("socket").shutdown(2)
    await gone(http, url)


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("?cols=abc", 400, "cols and rows must be valid numbers"),
        ("?rows=-1", 400, "cols and rows must be valid numbers"),
        ("?cols=1e9", 400, "cols and rows must be valid numbers"),
        ("?session=a%20b", 400, "Invalid session ID format"),
        ("?shell=/none", 502, "terminal failed: no such command: /none"),
    ],
)
async def test_what_cannot_be_opened_is_an_answer_to_the_upgrade(
    url: str, query: str, status: int, text: str
) -> None:
    async with aiohttp.ClientSession(headers=HEADERS) as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(f"{url}/pty{query}")
        assert caught.value.status == status


async def test_without_an_upgrade_or_a_key_there_is_no_terminal(
    url: str, http: httpx2.AsyncClient
) -> None:
    answer = await http.get(url + "/pty")
    assert (answer.status_code, answer.json()) == (
        400,
        {"error": "WebSocket upgrade required", "code": "invalid_request"},
    )
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(url + "/pty")
        assert caught.value.status == 401


async def test_a_killed_engine_leaves_terminals_of_sessions_and_no_others() -> None:
    """The next engine finds them, and their callers may go on."""
    node = Node()
    engine = node.start()
    path = "/v1/sandbox/box"
    async with (
        terminal(engine.hello["url"] + path) as mine,
        terminal(engine.hello["url"] + path, "?session=s") as shared,
    ):
        await mine.type("sleep 1111\n")
        await mine.until(rb"sleep 1111\r")
        await shared.type("sleep 2222 &\n")
        await shared.until(rb"sleep 2222 &\r")
        await asyncio.to_thread(engine.end, signal.SIGKILL)
    engine = await asyncio.to_thread(node.start)
    url = engine.hello["url"] + path
    async with httpx2.AsyncClient(headers=HEADERS, timeout=60) as http:
        async with asyncio.timeout(20):
            while "MTExMQ" in (left := await sleeping(http, url)):  # 1111
                await asyncio.sleep(0.1)
        assert "event: stdout" in left
    async with terminal(url, "?session=s") as found:
        await found.until(rb"sleep 2222 &\r")
        await found.type("exit\n")
        assert (await found.end())["type"] == "exit"
    await asyncio.to_thread(node.close, engine)
