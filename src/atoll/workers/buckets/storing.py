"""The blocking calls of a bucket, on obstore: a folder has metadata in files beside it.

Keys of obstore are paths: a prefix there is whole folders, so text prefixes are filtered here, and
a folder's listing, which has no order, is sorted.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore

from atoll.errors import FilesystemError
from atoll.wire.mounts import HIDDEN
from atoll.workers.buckets.values import R2Object

_HTTP: Mapping[str, str] = {
    "content_type": "Content-Type",
    "content_language": "Content-Language",
    "content_disposition": "Content-Disposition",
    "content_encoding": "Content-Encoding",
    "cache_control": "Cache-Control",
}


class Metadata(NamedTuple):
    """What is kept with an object."""

    http: dict[str, str]
    custom: dict[str, str]


class Storing:
    """One bucket.

    Args:
        name: for messages.
        objects: where objects are.
        notes: where metadata is, of a folder; None: the store keeps it itself.
    """

    def __init__(self, name: str, objects: ObjectStore, notes: LocalStore | None = None) -> None:
        self.name = name
        self.objects = objects
        self._notes = notes

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Have what obstore raises be of our tree; a missing object is a `FileNotFoundError`."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (BaseError, OSError, ValueError) as error:
            reason = str(error).split("\n", 1)[0][:500]
            raise FilesystemError(
                f"bucket {self.name!r}: {reason}", context={"bucket": self.name}
            ) from error

    def put(self, key: str, content: Any, metadata: Metadata) -> None:
        """Store an object with the content of a file."""
        with self.failures():
            if self._notes is None:
                obstore.put(
                    self.objects, key, content, attributes=_attributes(metadata), max_concurrency=4
                )
            else:
                obstore.put(self.objects, key, content)
                obstore.put(self._notes, key, json.dumps(metadata._asdict()).encode())

    def get(self, key: str, options: dict[str, Any]) -> tuple[R2Object, Any]:
        """Return an object and obstore's result; raise FileNotFoundError when there is none."""
        with self.failures():
            found = obstore.get(self.objects, key, options=options)  # type: ignore[arg-type]
            metadata = self._noted(key) if self._notes else _metadata(dict(found.attributes))
            return about(_checked(found.meta), metadata), found

    def content(self, result: Any) -> Iterator[bytes]:
        """Yield the content of what `get` returned, piece by piece."""
        with self.failures():
            for piece in result.stream():
                yield bytes(piece)

    def _noted(self, key: str) -> Metadata:
        try:
            noted = obstore.get(self._notes, key).bytes()  # type: ignore[arg-type]
            return Metadata(**json.loads(bytes(noted)))
        except (FileNotFoundError, ValueError, TypeError):
            return Metadata({}, {})

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is none the less gone."""
        with self.failures():
            with suppress(FileNotFoundError):
                obstore.delete(self.objects, key)
            if self._notes is not None:
                with suppress(FileNotFoundError):
                    obstore.delete(self._notes, key)

    def entries(self, prefix: str, after: str | None) -> Iterator[R2Object]:
        """Yield objects whose key begins with *prefix* and comes after *after*, in order."""
        folder = prefix.rpartition("/")[0]
        with self.failures():
            found = self._listed(folder, after)
            first = next(found, None)
            if first is None:
                self._check_server()
            for entry in () if first is None else itertools.chain((first,), found):
                key = str(entry["path"])
                shown = not key.startswith(HIDDEN) or prefix.startswith(HIDDEN)
                if key.startswith(prefix) and shown and (after is None or key > after):
                    yield about(entry, Metadata({}, {}))

    def _check_server(self) -> None:
        """Raise unless what is not there is missing: any page of XML is taken for an empty listing."""
        with suppress(FileNotFoundError):
            obstore.head(self.objects, HIDDEN + "none")
            raise ValueError("it has what nobody put there: its server is none of S3")

    def _listed(self, folder: str, after: str | None) -> Iterator[dict[str, Any]]:
        batches = obstore.list(self.objects, prefix=folder or None, offset=after)
        entries = (dict(entry) for batch in batches for entry in batch)
        if self._notes is None:
            return entries
        by_key: Callable[[dict[str, Any]], str] = lambda entry: str(entry["path"])  # noqa: E731
        return iter(sorted(entries, key=by_key))


def _checked(meta: Any) -> dict[str, Any]:
    """Return *meta*; raise ValueError where a server told nothing of what every object has."""
    if not meta["e_tag"]:
        raise ValueError("an object without an ETag: its server is none of S3")
    return dict(meta)


def about(meta: Mapping[str, Any], metadata: Metadata) -> R2Object:
    """Return an object as callers see it."""
    return R2Object(
        key=str(meta["path"]),
        size=int(meta["size"]),
        etag=str(meta["e_tag"] or "").strip('"'),
        uploaded=meta["last_modified"],
        http_metadata=metadata.http,
        custom_metadata=metadata.custom,
    )


def _attributes(metadata: Metadata) -> dict[str, str]:
    http = {_HTTP[name]: value for name, value in metadata.http.items()}
    return http | metadata.custom


def _metadata(attributes: Mapping[str, str]) -> Metadata:
    ours = {header: name for name, header in _HTTP.items()}
    http = {ours[name]: value for name, value in attributes.items() if name in ours}
    return Metadata(http, {n: v for n, v in attributes.items() if n not in ours})


HTTP_METADATA = frozenset(_HTTP)
"""Names that `http_metadata` may have."""
