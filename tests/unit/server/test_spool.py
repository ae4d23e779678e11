import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.requests import Request

from atoll.errors import FileTooLargeError, ValidationFailedError
from atoll.server.spool import IN_MEMORY, Spool, read_frames
from atoll.wire import frames
from atoll.wire.frames import Kind


def request(*pieces: bytes) -> Request:
    waiting = list(pieces)

    async def receive() -> dict[str, object]:
        body = waiting.pop(0) if waiting else b""
        return {"type": "http.request", "body": body, "more_body": bool(waiting)}

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


async def whole(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


@pytest.mark.parametrize("size", [0, 1, IN_MEMORY, IN_MEMORY + 1, 3 * IN_MEMORY])
async def test_what_goes_in_comes_out_and_leaves_no_file(tmp_path: Path, size: int) -> None:
    with Spool(tmp_path, limit=size) as spool:
        data = (bytes(range(256)) * (size // 256 + 1))[:size]
        for start in range(0, size, 100_000):
            spool.write(data[start : start + 100_000])
        assert await whole(spool.chunks()) == data
        assert list(tmp_path.iterdir()) == []


def test_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    with Spool(tmp_path, limit=3) as spool:
        spool.write(b"abc")
        with pytest.raises(FileTooLargeError) as caught:
            spool.write(b"d")
    assert caught.value.context["limit"] == 3


HEADER = frames.encode(Kind.HEADER, json.dumps({"command": "x"}).encode())
BODY = HEADER + frames.encode(Kind.STDIN, b"ab") + frames.encode(Kind.STDIN_CLOSE)


@pytest.mark.parametrize("cut", range(1, len(BODY)))
async def test_frames_may_be_cut_anywhere(tmp_path: Path, cut: int) -> None:
    with Spool(tmp_path, limit=10) as spool:
        header = await read_frames(request(BODY[:cut], BODY[cut:]), spool)
        assert json.loads(header) == {"command": "x"}
        assert await whole(spool.chunks()) == b"ab"


@pytest.mark.parametrize(
    "body",
    [b"", BODY[:-1], HEADER + HEADER, frames.encode(Kind.STDIN), HEADER + frames.encode(Kind.DATA)],
)
async def test_anything_else_is_refused(tmp_path: Path, body: bytes) -> None:
    with Spool(tmp_path, limit=10) as spool, pytest.raises(ValidationFailedError):
        await read_frames(request(body), spool)
