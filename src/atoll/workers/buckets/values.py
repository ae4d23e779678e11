"""What calls of a bucket take and return. Names are those of the platform, in snake case."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from atoll.errors import ValidationFailedError
from atoll.wire.mounts import HIDDEN
from atoll.workers.buckets.pieces import pieces

MAX_KEY = 1_024
"""Bytes of a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class R2Object:
    """An object without its content. `size` in bytes."""

    key: str
    size: int
    etag: str
    uploaded: datetime
    http_metadata: Mapping[str, str] = field(default_factory=dict)
    custom_metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def http_etag(self) -> str:
        """The etag as a header has it."""
        return f'"{self.etag}"'


class R2ObjectBody:
    """An object and its content, which is read once.

    Args:
        about: the object.
        chunks: its content; read in threads.
        range: offset and length of the part that was asked for.
    """

    def __init__(self, about: R2Object, chunks: Iterator[Any], range: tuple[int, int]) -> None:
        self.about = about
        self.range = range
        self._chunks = chunks

    def __getattr__(self, name: str) -> Any:
        return getattr(self.about, name)

    @property
    def body(self) -> AsyncIterator[bytes]:
        """The content in pieces."""
        return pieces(self._chunks)

    async def bytes(self) -> bytes:
        """Return all of it."""
        return b"".join([piece async for piece in self.body])

    async def text(self) -> str:
        """Return all of it, as UTF-8."""
        return (await self.bytes()).decode()

    async def json(self) -> Any:
        """Return the value it is the JSON of."""
        return json.loads(await self.bytes())


@dataclass(frozen=True, slots=True, kw_only=True)
class R2Objects:
    """A page of a listing, in the order of keys; `cursor` continues it where it is `truncated`."""

    objects: list[R2Object]
    truncated: bool = False
    cursor: str | None = None
    delimited_prefixes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedPart:
    """A part of an upload; give it back to complete that."""

    part_number: int
    etag: str


def checked_key(key: str) -> str:
    """Return *key* if folders and buckets alike can hold it.

    Raises:
        ValidationFailedError: it is too long, or has an empty part, ``.``, ``..`` or a control
            character.
    """
    parts = key.split("/")
    if not key or len(key.encode()) > MAX_KEY or not key.isprintable() or key.startswith(HIDDEN):
        raise ValidationFailedError(f"{key[:80]!r} is no key", context={"field": "key"})
    if {"", ".", ".."} & set(parts):
        raise ValidationFailedError(
            f"a part of the key {key[:80]!r} is empty or made of dots", context={"field": "key"}
        )
    return key


def strings(name: str, values: Mapping[str, str] | None) -> dict[str, str]:
    """Return *values* if all are text; raise as `checked_key`."""
    found = dict(values or {})
    if not all(
        isinstance(part, str) and part.isprintable() for pair in found.items() for part in pair
    ):
        raise ValidationFailedError(f"{name} maps text to text", context={"field": name})
    return found
