"""Archives of backups in a bucket, written as they are made: nothing of one lies on this host.

An archive is a folder of plain objects, ``backups/<id>/data.00000``…, and ``meta.json``, which is
written last: without it there is no backup. Parts are objects of their own and no multipart upload,
since what a crash leaves of one of those is seen by no listing, and kept for ever.

A note (`intents`) is durable before the first part is sent and while an archive goes, so that what
is left of either can be removed by its own engine, and nothing else in the bucket ever is. A note goes
when a look finds nothing: a request of the engine before may still have been under way.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

import structlog

from atoll.host.tasks import Tasks
from atoll.storage.buckets.objects import BucketError, Objects
from atoll.storage.intents import Intents
from atoll.storage.vault import Recorded

log = structlog.get_logger(__name__)

PART = 8 << 20
"""Bytes of one object: what is lost when a request fails and is sent again."""

UNDERWAY = 2
"""Parts of one archive that are sent at once: its memory is three of them."""

PATIENCE = 10.0
"""Seconds a caller waits until the objects of a backup are gone; longer ones go on behind."""

_FOLDER = "backups"


class BucketWriter:
    """An archive that is being written.

    Args:
        objects: the bucket.
        folder: its keys begin so.
    """

    def __init__(self, objects: Objects, folder: str) -> None:
        self._objects = objects
        self._folder = folder
        self._part = bytearray()
        self._sent: dict[str, int] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._hash = hashlib.sha256()
        self.size = 0
        self.kept = False

    @property
    def sha256(self) -> str:
        """Digest of what was written so far, in hexadecimal."""
        return self._hash.hexdigest()

    async def write(self, data: bytes) -> None:
        """Append *data*.

        Raises:
            BucketError: the bucket does not take it; so do all others here.
        """
        await asyncio.to_thread(self._hash.update, data)
        self.size += len(data)
        self._part += data
        while len(self._part) >= PART:
            await self._send(PART)

    async def _send(self, size: int) -> None:
        while len(self._sending) >= UNDERWAY:
            await self._one_sent()
        data, key = bytes(self._part[:size]), f"{self._folder}/data.{len(self._sent):05}"
        del self._part[:size]
        self._sent[key] = len(data)
        self._sending.add(asyncio.create_task(self._objects.put(key, data)))

    async def _one_sent(self) -> None:
        done, self._sending = await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)
        failures = [task.exception() for task in done]
        if failure := next(filter(None, failures), None):
            raise failure

    async def finish(self) -> None:
        """Send the rest, and see that the bucket has what it was sent."""
        if self._part:
            await self._send(len(self._part))
        while self._sending:
            await self._one_sent()
        if await self._objects.sizes(self._folder) != self._sent:
            raise BucketError(self._objects.name, "failed", "it does not keep what it is sent")

    async def publish(self, account: bytes) -> None:
        """See `Writing.publish`."""
        await self._objects.put(_meta(self._folder), account)

    def keep(self) -> None:
        """See `Writing.keep`."""
        self.kept = True

    async def settle(self) -> None:
        """Wait until nothing is on its way any more."""
        await asyncio.gather(*self._sending, return_exceptions=True)


class BucketReader:
    """The content of objects, one after the other. Blocking.

    Args:
        objects: the bucket.
        keys: of the parts, in order.
    """

    def __init__(self, objects: Objects, keys: Iterable[str]) -> None:
        self._objects = objects
        self._keys = iter(keys)
        self._rest = memoryview(b"")

    def read(self, size: int = -1, /) -> bytes:
        """Return at most *size* bytes, and no more than the part at hand has; none at the end."""
        while not self._rest:
            key = next(self._keys, None)
            if key is None:
                return b""
            self._rest = memoryview(self._objects.read(key))
        end = len(self._rest) if size < 0 else size
        data, self._rest = bytes(self._rest[:end]), self._rest[end:]
        return data


class BucketVault:
    """Keeps archives in a bucket.

    Args:
        objects: the bucket.
        intents: notes of this engine's own.
    """

    def __init__(self, objects: Objects, intents: Intents) -> None:
        self._objects = objects
        self._intents = intents
        self._busy: set[str] = set()
        self._behind = Tasks()
        self.threads = objects.threads

    @property
    def name(self) -> str:
        """The bucket's."""
        return self._objects.name

    def open(self) -> None:
        """Make the folder of notes; nothing is asked of the bucket."""
        self._intents.open()

    async def close(self) -> None:
        """Leave what is under way; notes tell the next engine of it."""
        await self._behind.close()
        self._objects.close()

    @asynccontextmanager
    async def writing(self, id: str) -> AsyncIterator[BucketWriter]:
        """See `Archives.writing`. What failed is removed behind the caller's back."""
        archive = BucketWriter(self._objects, _folder(id))
        self._busy.add(id)
        try:
            await asyncio.to_thread(self._intents.add, id)
            yield archive
        finally:
            if archive.kept:
                self._intents.drop(id)
                self._busy.discard(id)
            else:
                self._begin(id, archive.settle)

    @asynccontextmanager
    async def opened(self, id: str) -> AsyncIterator[BucketReader]:
        """See `Archives.opened`.

        Raises:
            BucketError: there is none, or the bucket does not answer.
        """
        keys = list(await self._objects.sizes(_folder(id)))
        if _meta(_folder(id)) not in keys:
            raise BucketError(self.name, "NoSuchKey", "the archive is not there any more")
        yield BucketReader(self._objects, (key for key in keys if "/data." in key))

    async def account(self, id: str) -> bytes | None:
        """Return what `publish` was told of an archive, whichever engine wrote it.

        Raises:
            BucketError: the bucket does not answer.
        """
        if id in self._intents.ids():
            return None  # it goes, or is not whole
        return await self._objects.get(_meta(_folder(id)))

    @asynccontextmanager
    async def deleting(self, id: str) -> AsyncIterator[None]:
        """See `Archives.deleting`. Objects that the bucket does not give up yet go later."""
        self._busy.add(id)
        try:
            await asyncio.to_thread(self._intents.add, id)
            yield
        except BaseException:
            self._intents.drop(id)
            self._busy.discard(id)
            raise
        await asyncio.wait({self._begin(id)}, timeout=PATIENCE)

    def _begin(
        self, id: str, before: Callable[[], Awaitable[None]] | None = None
    ) -> asyncio.Task[None]:
        return self._behind.begin(self._removed(id, before))

    async def _removed(self, id: str, before: Callable[[], Awaitable[None]] | None) -> None:
        try:
            if before:
                await before()
            await self.delete(id)
        except BucketError as error:
            log.warning("objects of a backup stay for now", backup=id, reason=str(error))
        finally:
            self._busy.discard(id)

    async def delete(self, id: str) -> None:
        """See `Archives.delete`.

        Raises:
            BucketError: the bucket does not answer; the note stays.
        """
        folder = _folder(id)
        found = await self._objects.sizes(folder)
        for key in sorted(found, key=lambda key: key != _meta(folder)):
            await self._objects.delete(key)
        if not found:
            self._intents.drop(id)

    async def orphans(self, recorded: Recorded) -> set[str]:
        """See `Archives.orphans`: of this engine only, by its notes."""
        found = await asyncio.to_thread(self._intents.ids) - self._busy
        rows = set(await recorded())
        for id in (found & rows) - self._busy:
            self._intents.drop(id)  # the engine died between the row and this
        return found - rows


def _folder(id: str) -> str:
    return f"{_FOLDER}/{id}"


def _meta(folder: str) -> str:
    return f"{folder}/meta.json"
