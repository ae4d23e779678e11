"""Files and archives of the workspace: raw bytes both ways, passed on piece by piece.

An archive is unpacked beside the workspace and put in place only when all of it has come, so a
broken or hostile one changes nothing. Its links may point out of the workspace, as those of any
virtual environment do; nothing that unpacks follows them. A session makes no difference to a file:
paths are absolute. Its id is checked and no more.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from atoll.engine.engine import Engine
from atoll.engine.link.link import Link, LinkError
from atoll.server import answer
from atoll.server.answer import Stream
from atoll.server.bridge import requests
from atoll.server.bridge.failures import invalid
from atoll.server.files import header_of
from atoll.wire import files, ops
from atoll.wire.frames import Kind

BYTES = "application/octet-stream"
OK = b'{"ok":true}'

_INERT = {"x-content-type-options": "nosniff"}
"""A browser takes what code in a sandbox wrote for bytes, never for a page."""


def done() -> Response:
    """Return the answer of what has no result."""
    return Response(OK, media_type="application/json")


async def read(engine: Engine, request: Request) -> Stream:
    """Answer with the bytes of a file."""
    requests.session(request)
    header = header_of(ops.READ_FILE, ops.ReadFile(path=requests.file_path(request)))

    async def run(stream: Stream) -> None:
        async with _opened(engine, request, header) as link:
            meta = msgspec.json.decode(await link.reply(timeout=None), type=files.FileMeta)
            await _pass_on(link, stream, {"content-length": str(meta.size)})

    return Stream(run)


async def write(engine: Engine, request: Request) -> Response:
    """Write the body to a file, making its directories."""
    requests.session(request)
    wanted = ops.WriteFile(path=requests.file_path(request))
    async with _opened(engine, request, header_of(ops.WRITE_FILE, wanted)) as link:
        await _store(link, answer.uploaded(request))
    return done()


async def persist(engine: Engine, request: Request) -> Stream:
    """Answer with a tar archive of the workspace."""
    wanted = files.DownloadRequest(
        path=requests.WORKSPACE,
        excludes=anchored(request.query_params.get("excludes", "")),
        hard_links=False,  # the OpenAI Agents SDK takes no archive that has one
    )
    header = header_of(ops.DOWNLOAD, wanted)

    async def run(stream: Stream) -> None:
        async with _opened(engine, request, header) as link:
            await link.reply(timeout=None)
            await _pass_on(link, stream, {})

    return Stream(run)


def anchored(excludes: str) -> str:
    """Return the globs for paths that are seen from the workspace; what is below goes with them.

    Raises:
        ValidationFailedError: one has a ``..``.
    """
    if ".." in excludes:
        raise invalid('exclude paths must not contain ".."')
    paths = (path.removeprefix("./").strip("/") for path in excludes.split(","))
    return ",".join(f"/{path}" for path in paths if path)


async def hydrate(engine: Engine, request: Request) -> Response:
    """Unpack the body, a tar archive, into the workspace."""
    limit = engine.settings.server.max_hydrate
    if announced(request) > limit:
        raise _too_large(announced(request), limit)
    body = limited(answer.uploaded(request), limit)
    first = await anext(body, b"")
    if not first:
        raise invalid("Empty tar payload")
    header = header_of(ops.UPLOAD, files.UploadRequest(path=requests.WORKSPACE, outside_links=True))
    async with _opened(engine, request, header) as link:
        await _store(link, _chained(first, body))
    return done()


def announced(request: Request) -> int:
    """Return the length that a request says its body has; 0 where it says none."""
    text = request.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0


async def limited(body: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    """Yield *body*.

    Raises:
        ValidationFailedError: it has more than *limit* bytes.
    """
    size = 0
    async for chunk in body:
        size += len(chunk)
        if size > limit:
            raise _too_large(size, limit)
        yield chunk


def _too_large(size: int, limit: int) -> Exception:
    return invalid(f"tar payload too large: {size} bytes exceeds the {limit}-byte limit")


async def _chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


async def _pass_on(link: Link, stream: Stream, headers: dict[str, str]) -> None:
    await stream.start(200, BYTES, headers | _INERT)
    async for chunk in link.body():
        await stream.write(chunk)
    await stream.end()


async def _store(link: Link, body: AsyncIterator[bytes]) -> None:
    with suppress(LinkError):  # the answer says why
        async for chunk in body:
            await link.send_piece(chunk)
        await link.send(Kind.END, b"{}")
    await link.reply(timeout=None)


@asynccontextmanager
async def _opened(engine: Engine, request: Request, header: dict[str, Any]) -> AsyncIterator[Link]:
    found = requests.sandbox(engine, request)
    async with found.use() as endpoint, await endpoint.open(header) as link:
        yield link
