"""Objects of one bucket, by blocking calls of obstore in threads of their own.

A request to an endpoint that is silent holds its thread until it times out. There are few, so that
those who wait for the bucket wait for each other, and all other work of the engine goes on.
"""

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

import obstore
from obstore.exceptions import BaseError
from obstore.store import ObjectStore, S3Store

from atoll.storage.buckets.options import Credentials, Source
from atoll.storage.buckets.probe import ADVICE

T = TypeVar("T")

THREADS = 16
"""Requests under way at once."""

TIMEOUT = 60.0
"""Seconds of one request: 8 MiB, at 140 kB/s."""

_NOTHING = "no-object-has-this-name"

_CODE = re.compile(r"<Code>([A-Za-z0-9]{1,64})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,300})</Message>")
_STATUS = re.compile(r"status code: (\d{3})")


class BucketError(Exception):
    """A bucket does not do what was asked of it; `reason` is the server's code where it told one."""

    def __init__(self, bucket: str, reason: str, message: str) -> None:
        super().__init__(f"bucket {bucket!r}: {message}")
        self.bucket = bucket
        self.reason = reason
        self.advice = ADVICE.get(reason)


class Objects:
    """The calls.

    Args:
        name: the bucket's, for messages.
        store: the bucket.
    """

    def __init__(self, name: str, store: ObjectStore) -> None:
        self.name = name
        self._store = store
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="bucket")

    @classmethod
    def of(cls, source: Source, credentials: Credentials) -> "Objects":
        """Return those of a bucket that speaks S3; no request is made."""
        store = S3Store(
            source.bucket,
            endpoint=str(source.endpoint) if source.by_path else _with_bucket(source),
            access_key_id=credentials.access_key_id,
            secret_access_key=credentials.secret_access_key,
            region=source.region,
            virtual_hosted_style_request=not source.by_path,
            disable_bulk_delete=True,  # Google's servers have no deletion of many
            client_options={
                "allow_http": source.endpoint.scheme == "http",
                "timeout": timedelta(seconds=TIMEOUT),
                "connect_timeout": timedelta(seconds=5),
            },
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=TIMEOUT)},
        )
        return cls(source.bucket, store)

    def close(self) -> None:
        """Begin nothing more; what is under way ends by itself."""
        self.threads.shutdown(wait=False, cancel_futures=True)

    async def put(self, key: str, data: bytes) -> None:
        """Store an object in one request.

        Raises:
            BucketError: the bucket refuses or does not answer; so do all others here.
        """
        await self._run(lambda: obstore.put(self._store, key, data, use_multipart=False))

    def read(self, key: str) -> bytes:
        """Return the content of an object. Blocking."""
        return self._asked(lambda: bytes(obstore.get(self._store, key).bytes()))

    async def get(self, key: str) -> bytes | None:
        """Return the content of an object; None when there is none."""
        return await self._run(lambda: self._content(key))

    def _content(self, key: str) -> bytes | None:
        try:
            return self.read(key)
        except BucketError as error:
            if error.reason == "NoSuchKey":
                return None
            raise

    async def sizes(self, folder: str) -> dict[str, int]:
        """Return the keys below *folder*, in order, with the bytes of each."""
        found = await self._run(lambda: self._listed(folder))
        return dict(sorted(found.items()))

    def _listed(self, folder: str) -> dict[str, int]:
        batches = obstore.list(self._store, prefix=folder)
        found = {entry["path"]: entry["size"] for batch in batches for entry in batch}
        if not found:
            self._check_server(folder)
        return found

    def _check_server(self, folder: str) -> None:
        """Raise unless what is not there is missing: any page of XML is taken for an empty listing."""
        try:
            obstore.head(self._store, f"{folder}/{_NOTHING}")
        except FileNotFoundError:
            return
        raise ValueError("it has what nobody put there: its server is none of S3")

    async def delete(self, key: str) -> None:
        """Remove an object. Idempotent."""
        await self._run(lambda: self._deleted(key))

    def _deleted(self, key: str) -> None:
        try:
            obstore.delete(self._store, key)
        except FileNotFoundError as error:
            if (told := failure(self.name, error)).reason != "NoSuchKey":
                raise told from error

    async def _run(self, call: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.threads, self._asked, call)

    def _asked(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except (BaseError, OSError, ValueError) as error:
            raise failure(self.name, error) from error


def _with_bucket(source: Source) -> str:
    """Obstore takes an endpoint as the whole origin where the bucket is part of the host's name."""
    scheme, _, host = str(source.endpoint).partition("://")
    return f"{scheme}://{source.bucket}.{host}"


def failure(bucket: str, error: Exception) -> BucketError:
    """Return what an error of obstore means, without what only its developers need. Pure."""
    text = str(error).partition("\n\nDebug source")[0]
    code, message, status = (_found(p, text) for p in (_CODE, _MESSAGE, _STATUS))
    if code:
        return BucketError(bucket, code, f"{code}: {message or 'refused'}")
    if isinstance(error, FileNotFoundError):
        return BucketError(bucket, "NoSuchKey", "there is no such object")
    if status:
        return BucketError(bucket, f"HTTP {status}", f"its server answers with status {status}")
    words: dict[str, Any] = {"timed out": "no answer in time", "error sending": "unreachable"}
    why = next((told for word, told in words.items() if word in text), text.splitlines()[0][:300])
    return BucketError(bucket, "unreachable" if why in words.values() else "failed", why)


def _found(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match[1].strip() if match else None
