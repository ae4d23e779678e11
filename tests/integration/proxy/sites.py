"""A site with one preview on a listening socket, and a server behind it that the test scripts."""

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from atoll.errors import InvalidTokenError, ServiceNotRespondingError
from atoll.proxy.access import Access
from atoll.proxy.route import Visitor
from atoll.proxy.server import Connection, Entrance, Site
from atoll.wire.ports import Visit
from atoll.wire.preview import Target

NAME = "8080-box-tok.localhost"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Place:
    """A `Route` to a port of this host."""

    sandbox_id = "box"
    port = 8080
    access = Access(public=True, auth=None, secret="s")

    def __init__(self, port: int) -> None:
        self.to = port
        self.visits: deque[Visit] = deque()
        self.cuts: set[Callable[[], None]] = set()
        self.dialled = self.touched = self.awaited = 0

    def check(self) -> None:
        pass

    async def dial(self) -> socket.socket:
        self.dialled += 1
        made = socket.socket()
        made.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", self.to))
        except OSError as error:
            made.close()
            raise ServiceNotRespondingError("nothing there") from error
        return made

    def touch(self) -> None:
        self.touched += 1

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self.awaited += 1
        yield

    @contextmanager
    def connected(self, cut: Callable[[], None]) -> Iterator[None]:
        self.cuts.add(cut)
        try:
            yield
        finally:
            self.cuts.discard(cut)

    async def enter(self, key: str) -> bool:
        return key == "k" * 32


class Routes:
    """The one place there is."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def find(self, target: Target, namespaces: frozenset[str] | None = None) -> Place:
        if target.token != "tok":
            raise InvalidTokenError("no preview")
        return self.place


class World:
    """What a test works with.

    Args:
        place: the preview.
        site: what serves it.
        port: of the visitors' listener.
    """

    def __init__(self, place: Place, site: Site, port: int) -> None:
        self.place = place
        self.site = site
        self.port = port
        self._writers: list[asyncio.StreamWriter] = []

    async def visit(self, request: str | bytes = b"") -> "Talk":
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        talk = Talk(reader, writer)
        talk.send(request)
        return talk

    async def ask(self, path: str = "/", more: str = "") -> bytes:
        """Send one request of its own connection and return the whole answer."""
        talk = await self.visit(get(path, "Connection: close\r\n" + more))
        return await talk.rest()

    async def close(self) -> None:
        await self.site.close()
        for writer in self._writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


class Talk:
    """One visitor's connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: str | bytes) -> None:
        self.writer.write(data.encode() if isinstance(data, str) else data)

    async def until(self, end: bytes) -> bytes:
        async with asyncio.timeout(20):
            return await self.reader.readuntil(end)

    async def rest(self) -> bytes:
        async with asyncio.timeout(20):
            return await self.reader.read()

    async def cut(self) -> bool:
        with suppress(ConnectionResetError):
            await self.rest()
        return True


def get(path: str = "/", more: str = "") -> str:
    return f"GET {path} HTTP/1.1\r\nHost: {NAME}\r\n{more}\r\n"


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def answering(answer: bytes = OK) -> Serve:
    """Return a server that gives the same answer to every request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(answer)

    return serve


@asynccontextmanager
async def world(serve: Serve, limit: int = 100) -> AsyncIterator[World]:
    """Run *serve* behind a preview."""
    tasks: set[asyncio.Task[None]] = set()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            tasks.discard(task)

    behind = await asyncio.start_server(run, "127.0.0.1", 0)
    place = Place(behind.sockets[0].getsockname()[1])
    site = Site(Routes(place), frozenset({"localhost"}), lambda _: False, limit)

    class Door(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            entrance = Entrance(Visitor("1.2.3.4"), site.trusted, site.domains)
            Connection(site, entrance, transport)

    front = await asyncio.get_running_loop().create_server(Door, "127.0.0.1", 0)
    found = World(place, site, front.sockets[0].getsockname()[1])
    try:
        yield found
    finally:
        front.close()
        await found.close()
        behind.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
