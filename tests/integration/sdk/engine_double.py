"""An engine that does what a script says: answers late, in part, with errors, or not at all.

Real engines are used wherever they can show a behaviour; this one shows what they only do when
something breaks.
"""

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from atoll.errors import SandboxError
from atoll.wire import frames
from atoll.wire.frames import Kind


@dataclass
class Seen:
    """A request that arrived."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """What to answer. `cut`: close the connection after that many bytes of the body."""

    body: bytes = b"{}"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    delay: float = 0.0
    hold: bool = False  # keep the connection open after the body, without ending it
    silent: bool = False  # close the connection without any answer


def failing(error: SandboxError, **headers: str) -> Answer:
    return Answer(json.dumps(error.to_wire()).encode(), error.http_status, headers)


def frame(kind: Kind, **payload: Any) -> bytes:
    return frames.encode(kind, json.dumps(payload).encode())


def out(offset: int, data: bytes, kind: Kind = Kind.STDOUT) -> bytes:
    return frames.encode_output(kind, 0, offset, data)


STARTED = frame(Kind.STARTED, pid=7)


def command(stdout: bytes = b"", **exited: Any) -> Answer:
    ending = frame(Kind.EXITED, **({"exit_code": 0} | exited))
    return Answer(STARTED + (out(0, stdout) if stdout else b"") + ending)


class EngineDouble:
    """Serves on a unix socket. `script` answers by method and end of path; the last one stays."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.url = f"unix://{socket}"
        self.seen: list[Seen] = []
        self.connections = 0
        self._answers: dict[str, list[Answer]] = defaultdict(list)
        self._arrived = threading.Condition()

    def script(self, route: str, *answers: Answer) -> None:
        """Set the answers of a route, written ``POST /exec``."""
        self._answers[route] = list(answers)

    def requests(self, route: str) -> list[Seen]:
        return [seen for seen in self.seen if _is(route, seen)]

    def wait_for(self, route: str, seconds: float = 5.0, count: int = 1) -> Seen:
        """Return the request of a route once that many have arrived."""
        with self._arrived:
            done = self._arrived.wait_for(lambda: len(self.requests(route)) >= count, seconds)
        assert done, f"{route} did not arrive"
        return self.requests(route)[count - 1]

    @contextmanager
    def serving(self) -> Iterator["EngineDouble"]:
        loop = asyncio.new_event_loop()
        ready = threading.Event()
        stop = asyncio.Event()

        async def serve() -> None:
            async with await asyncio.start_unix_server(self._connection, self.socket):
                ready.set()
                await stop.wait()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)

        thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
        thread.start()
        ready.wait()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()
            loop.close()
            self.socket.unlink(missing_ok=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while await self._request(reader, writer):
                    pass
        finally:
            writer.transport.abort()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        url = urlsplit(target)
        body = await _body(reader, headers)
        seen = Seen(method, unquote(url.path), url.query, headers, body)
        answer = self._answer(seen)
        with self._arrived:
            self.seen.append(seen)
            self._arrived.notify_all()
        await asyncio.sleep(answer.delay)
        return not answer.silent and await _send(writer, answer)

    def _answer(self, seen: Seen) -> Answer:
        for route, answers in self._answers.items():
            if _is(route, seen):
                return answers.pop(0) if len(answers) > 1 else answers[0]
        return Answer(b'{"code": "ROUTE_NOT_FOUND", "message": "not in the script"}', 404)


def _is(route: str, seen: Seen) -> bool:
    method, end = route.split(" ")
    return seen.method == method and seen.path.endswith(end)


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return body


async def _send(writer: asyncio.StreamWriter, answer: Answer) -> bool:
    head = [f"HTTP/1.1 {answer.status} X", "transfer-encoding: chunked"]
    head += [f"{name.replace('_', '-')}: {value}" for name, value in answer.headers.items()]
    writer.write(("\r\n".join(head) + "\r\n\r\n").encode())
    body = answer.body if answer.cut is None else answer.body[: answer.cut]
    if body:
        writer.write(f"{len(body):x}\r\n".encode() + body + b"\r\n")
    await writer.drain()
    if answer.hold:
        await asyncio.sleep(60)
    if answer.cut is not None:
        return False
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True
