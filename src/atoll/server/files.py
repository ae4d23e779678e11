"""Bodies of files and archives: raw bytes both ways, never collected, with Range and ETag."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request

from atoll.engine.commands import filewatch
from atoll.engine.engine import Engine
from atoll.engine.link import early
from atoll.engine.link.link import Link, LinkError, SilenceError
from atoll.errors import RangeNotSatisfiableError, TimeoutError
from atoll.server import addressed, answer, shapes
from atoll.server.answer import Stream
from atoll.wire import files, frames, ops
from atoll.wire.base import Request as WireRequest
from atoll.wire.frames import Kind

_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)")
SILENCE = 120.0
"""Seconds a file operation may be in one system call. A slow disk syncs hundreds of MB in that time;
a mount whose server is gone never answers. The agent sends a heartbeat after each 15."""

_DIGITS = 18
"""Of an offset that a file can have. `int` of thousands of them is an error."""

INERT = {"x-content-type-options": "nosniff", "content-security-policy": "sandbox"}
"""A page that code in a sandbox wrote must not act as this engine's own in a browser."""


class Part(NamedTuple):
    """A part of a file. `length` None: up to the end. A negative `offset` counts from the end."""

    offset: int = 0
    length: int | None = None


def parse_range(header: str | None) -> Part | None:
    """Return what a ``Range`` header asks for.

    None where there is none, or one that we answer in full: other units, several ranges.
    """
    match = _RANGE.fullmatch(header.strip()) if header else None
    if not match or match[0] == "bytes=-":
        return None
    first, last = match[1], _offset(match[2])
    if not first:
        return Part(-last)
    start = _offset(first)
    if not match[2]:
        return Part(start)
    return Part(start, last - start + 1) if last >= start else None


def _offset(digits: str) -> int:
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= _DIGITS else 10**_DIGITS


def within(part: Part, size: int) -> Part:
    """Return *part* with both ends inside a file of *size* bytes.

    Raises:
        RangeNotSatisfiableError: it lies outside.
    """
    start = max(0, size + part.offset) if part.offset < 0 else part.offset
    if start >= size or (part.offset == 0 and part.length == 0):
        raise RangeNotSatisfiableError(
            f"the range starts at {start}, the file has {size} bytes", context={"size": size}
        )
    length = size - start if part.length is None else min(part.length, size - start)
    return Part(start, length)


def header_of(op: ops.Op[Any, Any], request: WireRequest) -> dict[str, Any]:
    """Return the agent's HEADER for a file operation: the request's fields in snake case."""
    return {"op": f"fs.{op.name}"} | msgspec.structs.asdict(request)


async def unary(engine: Engine, op: ops.Op[Any, Any], request: Request, wanted: WireRequest) -> Any:
    """Run a file operation with a JSON answer, which is checked before it is passed on."""
    async with _opened(engine, request, header_of(op, wanted)) as link:
        reply = await link.reply(timeout=None, silence=SILENCE)
    return msgspec.json.decode(reply, type=op.result)


async def read(engine: Engine, request: Request) -> Stream:
    """Answer with a file, or the part of it that is asked for."""
    wanted: ops.ReadFile = answer.decode_query(request, ops.ReadFile)
    return Stream(lambda stream: _read(engine, request, wanted, stream))


async def _read(engine: Engine, request: Request, wanted: ops.ReadFile, stream: Stream) -> None:
    part = parse_range(request.headers.get("range"))
    if part and request.headers.get("if-range"):
        meta = await _meta(engine, request, wanted)
        part = part if request.headers["if-range"] == _quoted(meta.etag) else None
    if part:
        meta = await _meta(engine, request, wanted)
        part = within(part, meta.size)
        wanted = msgspec.structs.replace(wanted, offset=part.offset, length=part.length)
    async with _opened(engine, request, header_of(ops.READ_FILE, wanted)) as link:
        meta = msgspec.json.decode(
            await link.reply(timeout=None, silence=SILENCE), type=files.FileMeta
        )
        if request.headers.get("if-none-match") == _quoted(meta.etag):
            await stream.start(304, meta.mime_type, {"etag": _quoted(meta.etag)})
        else:
            headers = _headers(meta, wanted, part)
            await stream.start(206 if part else 200, meta.mime_type, headers)
            left = int(headers["content-length"])
            async for chunk in link.body(SILENCE):
                if (left := left - len(chunk)) < 0:
                    raise LinkError("the agent sent more of a file than it said there is")
                await stream.write(chunk)
    await stream.end()


async def _meta(engine: Engine, request: Request, wanted: ops.ReadFile) -> files.FileMeta:
    nothing = msgspec.structs.replace(wanted, offset=0, length=0)
    async with _opened(engine, request, header_of(ops.READ_FILE, nothing)) as link:
        return msgspec.json.decode(
            await link.reply(timeout=None, silence=SILENCE), type=files.FileMeta
        )


def _headers(meta: files.FileMeta, wanted: ops.ReadFile, part: Part | None) -> dict[str, str]:
    rest = max(0, meta.size - wanted.offset)
    length = rest if wanted.length is None else min(wanted.length, rest)
    headers = {
        ops.RESULT_HEADER: answer.ascii_json(meta),
        "etag": _quoted(meta.etag),
        "accept-ranges": "bytes",
        "content-length": str(length),
        **INERT,
    }
    if part:
        last = wanted.offset + length - 1
        headers["content-range"] = f"bytes {wanted.offset}-{last}/{meta.size}"
    return headers


def _quoted(etag: str) -> str:
    return '"' + re.sub(r"[^!#-~]", "", etag) + '"'


async def watch(engine: Engine, request: Request, wanted: files.WatchRequest) -> Stream:
    """Answer with the changes below a path, as they happen."""
    sandbox = addressed.sandbox(engine, request)
    id: str = request.scope["request_id"]
    form: shapes.Form = shapes.FramesForm(id)
    if shapes.SSE in request.headers.get("accept", ""):
        form = shapes.WatchSseForm(id)
    elif frames.CONTENT_TYPE not in request.headers.get("accept", ""):
        form = shapes.WatchNdjsonForm(id)
    source = filewatch.watch(sandbox, header_of(ops.WATCH, wanted))
    return Stream(lambda stream: answer.pump(source, form, stream, id))


async def download(engine: Engine, request: Request) -> Stream:
    """Answer with an archive of a directory."""
    wanted = answer.decode_query(request, files.DownloadRequest)
    return Stream(lambda stream: _download(engine, request, wanted, stream))


async def _download(
    engine: Engine, request: Request, wanted: files.DownloadRequest, stream: Stream
) -> None:
    async with _opened(engine, request, header_of(ops.DOWNLOAD, wanted)) as link:
        told = msgspec.json.decode(
            await link.reply(timeout=None, silence=SILENCE), type=files.Archive
        )
        headers = {ops.RESULT_HEADER: answer.ascii_json(told), **INERT}
        await stream.start(200, "application/x-tar", headers)
        async for chunk in link.body(SILENCE):
            await stream.write(chunk)
    await stream.end()


async def store(engine: Engine, op: ops.Op[Any, Any], request: Request) -> Any:
    """Pass an uploaded body on to the agent: a file to write, or an archive to unpack."""
    wanted = answer.decode_query(request, op.request)
    async with _opened(engine, request, header_of(op, wanted)) as link:
        with early.answers():
            async for chunk in answer.uploaded(request):
                await link.send_piece(chunk, SILENCE)
            await link.send(Kind.END, b"{}")
        reply = await link.reply(timeout=None, silence=SILENCE)
    return msgspec.json.decode(reply, type=op.result)


@asynccontextmanager
async def _opened(engine: Engine, request: Request, header: dict[str, Any]) -> AsyncIterator[Link]:
    sandbox = addressed.sandbox(engine, request)
    async with sandbox.use() as endpoint, await endpoint.open(header) as link:
        try:
            yield link
        except SilenceError as error:
            path = header.get("path") or header.get("source")
            raise TimeoutError(
                f"{header['op'].removeprefix('fs.')} made no progress for {SILENCE:g} s: {path}",
                context={"path": path, "timeout": SILENCE, "detail": str(error)},
                suggestion="its disk or mount does not answer; whether it changes anything yet is "
                "not known",
            ) from error
