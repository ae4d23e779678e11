from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request

from atoll.errors import ValidationFailedError
from atoll.server.bridge.files import anchored, announced, limited


@pytest.mark.parametrize(
    ("excludes", "globs"),
    [
        ("", ""),
        ("node_modules,./.venv/,", "/node_modules,/.venv"),
        ("a/b,/c", "/a/b,/c"),
        ("*.log", "/*.log"),
    ],
)
def test_excludes_are_seen_from_the_workspace(excludes: str, globs: str) -> None:
    assert anchored(excludes) == globs


def test_excludes_cannot_climb() -> None:
    with pytest.raises(ValidationFailedError):
        anchored("a,../b")


async def test_a_body_without_a_length_is_counted() -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"1234"

    assert [chunk async for chunk in limited(body(), 12)] == [b"1234"] * 3
    with pytest.raises(ValidationFailedError, match="exceeds the 11-byte limit"):
        async for _ in limited(body(), 11):
            pass


@pytest.mark.parametrize(
    ("header", "size"), [("12", 12), ("", 0), ("x", 0), ("-1", 0), ("9" * 30, 0)]
)
def test_a_length_is_believed_only_when_it_is_one(header: str, size: int) -> None:
    headers = [(b"content-length", header.encode())]
    assert announced(Request({"type": "http", "headers": headers})) == size
