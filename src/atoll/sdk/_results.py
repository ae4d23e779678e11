"""Results that only the SDK makes: they are put together from more than one answer."""

import base64
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import msgspec

from atoll.errors import ValidationFailedError
from atoll.wire.base import Result
from atoll.wire.files import FileMeta

ContentT = TypeVar("ContentT", str, bytes)


class ReadFileResult(Result, Generic[ContentT], frozen=True, kw_only=True):
    """Content of a file. `encoding` tells what `content` is: a codec's name, base64, or bytes."""

    content: ContentT
    encoding: str
    is_binary: bool
    mime_type: str
    size: int  # of the whole file, also when only a part was asked for
    path: str
    success: bool = True
    timestamp: datetime = msgspec.field(default_factory=lambda: datetime.now(UTC))


class State(Result, frozen=True, kw_only=True):
    """State of a sandbox in the words of 0.12: stopped, starting, healthy and so on."""

    status: str
    last_change: datetime
    exit_code: int | None = None


class ContainerTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long the client waits for containers, in seconds."""

    instance_get: float = 30.0
    port_ready: float = 90.0
    wait_interval: float = 0.3


def shape_content(
    data: bytes, meta: FileMeta, encoding: str | None
) -> ReadFileResult[str] | ReadFileResult[bytes]:
    """Return the content of a file as *encoding* asks.

    Args:
        data: what was read.
        meta: of the file.
        encoding: None (text when it is valid UTF-8, else base64), ``"bytes"``, ``"base64"``, or
            the name of a codec.

    Raises:
        ValidationFailedError: the content is not valid in the codec asked for.
    """
    known: dict[str, Any] = {
        "is_binary": meta.is_binary,
        "mime_type": meta.mime_type,
        "size": meta.size,
        "path": meta.path,
    }
    if encoding == "bytes":
        return ReadFileResult[bytes](content=data, encoding="bytes", **known)
    if encoding != "base64":
        try:
            text = data.decode(encoding or "utf-8")
            return ReadFileResult[str](content=text, encoding=encoding or "utf-8", **known)
        except UnicodeDecodeError as error:
            if encoding:
                raise _not_text(meta.path, encoding, error) from error
    content = base64.b64encode(data).decode()
    return ReadFileResult[str](content=content, encoding="base64", **known)


def _not_text(path: str, encoding: str, error: UnicodeDecodeError) -> ValidationFailedError:
    return ValidationFailedError(
        f"{path} is not valid {encoding}: byte {error.start} cannot be decoded",
        context={"path": path, "encoding": encoding, "position": error.start},
        suggestion='read it with encoding="bytes" or "base64"',
    )
