import errno
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.requests import Request

from atoll.engine.storage.room import Room, Share
from atoll.errors import FileTooLargeError, NoSpaceError, ValidationFailedError
from atoll.server import spool as spools
from atoll.server.spool import IN_MEMORY, Spool, read_frames
from atoll.wire import frames
from atoll.wire.frames import Kind
from unit.server.calling import call


def request(*pieces: bytes) -> Request:
    waiting = list(pieces)

    async def receive() -> dict[str, object]:
        body = waiting.pop(0) if waiting else b""
        return {"type": "http.request", "body": body, "more_body": bool(waiting)}

    return Request({"type": "http", "method": "POST", "headers": [], "call": call()}, receive)


def share(directory: Path, limit: int = 1 << 30) -> Share:
    return Room(directory, limit, 0).share()


async def whole(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


@pytest.mark.parametrize("size", [0, 1, IN_MEMORY, IN_MEMORY + 1, 3 * IN_MEMORY])
async def test_what_goes_in_comes_out_and_leaves_no_file(tmp_path: Path, size: int) -> None:
    with Spool(tmp_path, size, share(tmp_path)) as spool:
        data = (bytes(range(256)) * (size // 256 + 1))[:size]
        for start in range(0, size, 100_000):
            await spool.write(data[start : start + 100_000])
        assert await whole(spool.chunks()) == data
        assert list(tmp_path.iterdir()) == []


async def test_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    with Spool(tmp_path, 3, share(tmp_path)) as spool:
        await spool.write(b"abc")
        with pytest.raises(FileTooLargeError) as caught:
            await spool.write(b"d")
    assert caught.value.context["limit"] == 3


async def test_what_goes_to_the_disk_counts_until_it_is_gone(tmp_path: Path) -> None:
    room = Room(tmp_path, 2 * IN_MEMORY, 0)
    with Spool(tmp_path, 1 << 30, room.share()) as spool:
        await spool.write(bytes(IN_MEMORY))
        assert room.taken == 0
        await spool.write(b"x")
        assert room.taken == IN_MEMORY + 1
        with pytest.raises(NoSpaceError):
            await spool.write(bytes(IN_MEMORY + 1))
    assert room.taken == 0


async def test_a_full_disk_is_a_typed_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: object, data: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spools, "_write", full)
    with Spool(tmp_path, 1 << 30, share(tmp_path)) as spool, pytest.raises(NoSpaceError):
        await spool.write(bytes(IN_MEMORY + 1))


HEADER = frames.encode(Kind.HEADER, json.dumps({"command": "x"}).encode())
BODY = HEADER + frames.encode(Kind.STDIN, b"ab") + frames.encode(Kind.STDIN_CLOSE)


@pytest.mark.parametrize("cut", range(1, len(BODY)))
async def test_frames_may_be_cut_anywhere(tmp_path: Path, cut: int) -> None:
    with Spool(tmp_path, 10, share(tmp_path)) as spool:
        header = await read_frames(request(BODY[:cut], BODY[cut:]), spool)
        assert json.loads(header) == {"command": "x"}
        assert await whole(spool.chunks()) == b"ab"


@pytest.mark.parametrize(
    "body",
    [b"", BODY[:-1], HEADER + HEADER, frames.encode(Kind.STDIN), HEADER + frames.encode(Kind.DATA)],
)
async def test_anything_else_is_refused(tmp_path: Path, body: bytes) -> None:
    with Spool(tmp_path, 10, share(tmp_path)) as spool, pytest.raises(ValidationFailedError):
        await read_frames(request(body), spool)
