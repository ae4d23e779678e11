"""Uploads in parts. Parts are hidden objects beside the others until they are put together.

obstore has no uploads that another process could go on with, and folders have none at all; so this
is the same for both. Putting together reads and writes every byte once more, by way of a file:
obstore cannot read one object while it writes another in the same thread.
"""

import asyncio
import json
import re
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

from atoll.errors import ValidationFailedError
from atoll.wire.mounts import HIDDEN
from atoll.workers.buckets.pieces import IN_MEMORY, Content, spooled
from atoll.workers.buckets.storing import Metadata, Storing
from atoll.workers.buckets.values import R2Object, UploadedPart

MAX_PARTS = 10_000

_ID = re.compile(r"[0-9a-f]{32}")
_NONE = Metadata({}, {})


class MultipartUpload:
    """An upload in parts, which exists until it is completed or aborted.

    Args:
        storing: the bucket.
        key: of the object that it becomes.
        upload_id: names the upload.
    """

    def __init__(self, storing: Storing, key: str, upload_id: str) -> None:
        if not _ID.fullmatch(upload_id):
            raise ValidationFailedError(
                "this is no id of an upload", context={"field": "upload_id"}
            )
        self.key = key
        self.upload_id = upload_id
        self._storing = storing
        self._folder = f"{HIDDEN}{upload_id}/"

    async def upload_part(self, part_number: int, value: Content) -> UploadedPart:
        """Store a part in place of one of this number.

        Args:
            part_number: 1 to 10,000: the place of the part.
            value: text, bytes, or an asynchronous iterator of bytes.

        Raises:
            ValidationFailedError: the number is impossible, or there is no such upload.
        """
        if not 1 <= part_number <= MAX_PARTS:
            raise ValidationFailedError(f"parts have numbers from 1 to {MAX_PARTS}")
        await self._begun()
        part = self._part(part_number)
        with await spooled(value) as file:
            await asyncio.to_thread(self._storing.put, part, file, _NONE)
        found, _ = await asyncio.to_thread(self._storing.get, part, {"head": True})
        return UploadedPart(part_number=part_number, etag=found.etag)

    async def complete(self, parts: Iterable[UploadedPart]) -> R2Object:
        """Make the object of these parts, in the order of their numbers; others are dropped.

        Raises:
            ValidationFailedError: a part is not there as it was told, or there is no such upload.
        """
        metadata, wanted = await self._begun(), sorted(parts, key=lambda one: one.part_number)
        return await asyncio.to_thread(self._complete, wanted, metadata)

    def _complete(self, parts: list[UploadedPart], metadata: Metadata) -> R2Object:
        for part in parts:
            try:
                found, _ = self._storing.get(self._part(part.part_number), {"head": True})
            except FileNotFoundError:
                raise _no_part(part) from None
            if found.etag != part.etag:
                raise _no_part(part)
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as file:
            for piece in self._joined(parts):
                file.write(piece)
            file.seek(0)
            self._storing.put(self.key, file, metadata)
        self._abort()
        return self._storing.get(self.key, {"head": True})[0]

    def _joined(self, parts: list[UploadedPart]) -> Iterator[bytes]:
        for part in parts:
            _, result = self._storing.get(self._part(part.part_number), {})
            yield from self._storing.content(result)

    async def abort(self) -> None:
        """Forget the upload and its parts. Idempotent."""
        await asyncio.to_thread(self._abort)

    def _abort(self) -> None:
        keys = [entry.key for entry in self._storing.entries(self._folder, None)]
        # What says that there is an upload goes first: no part is added to one that is going.
        for key in sorted(keys, key=lambda key: key != self._note):
            self._storing.delete(key)

    async def _begun(self) -> Metadata:
        try:
            return await asyncio.to_thread(self._read)
        except FileNotFoundError:
            raise ValidationFailedError(
                f"there is no upload {self.upload_id} of {self.key!r}",
                context={"upload_id": self.upload_id},
                suggestion="it was completed or aborted; begin a new one",
            ) from None

    def _read(self) -> Metadata:
        _, result = self._storing.get(self._note, {})
        note: dict[str, Any] = json.loads(b"".join(self._storing.content(result)))
        if note["key"] != self.key:
            raise FileNotFoundError(self.key)
        return Metadata(note["http"], note["custom"])

    @property
    def _note(self) -> str:
        return self._folder + "upload"

    def _part(self, number: int) -> str:
        return f"{self._folder}{number:05}"


async def begun(storing: Storing, key: str, metadata: Metadata) -> MultipartUpload:
    """Return a new upload."""
    upload = MultipartUpload(storing, key, secrets.token_hex(16))
    note = json.dumps({"key": key, "http": metadata.http, "custom": metadata.custom})
    with await spooled(note) as file:
        await asyncio.to_thread(storing.put, upload._note, file, _NONE)  # noqa: SLF001
    return upload


def _no_part(part: UploadedPart) -> ValidationFailedError:
    return ValidationFailedError(
        f"part {part.part_number} is not there, or not as it was told",
        context={"part": part.part_number},
    )
