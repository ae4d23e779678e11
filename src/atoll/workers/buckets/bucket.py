"""``env.BUCKET``: get, head, put, delete, list, and uploads in parts."""

import asyncio
from collections.abc import Mapping, Sequence

from atoll.errors import ValidationFailedError
from atoll.workers.buckets.multipart import MultipartUpload, begun
from atoll.workers.buckets.pieces import Content, spooled
from atoll.workers.buckets.storing import HTTP_METADATA, Metadata, Storing
from atoll.workers.buckets.values import R2Object, R2ObjectBody, R2Objects, checked_key, strings

MAX_LIST = 1_000
"""Most entries of one page of a listing."""

MAX_DELETE = 1_000
"""Most keys of one call of `delete`."""


class Bucket:
    """One bucket of a Worker's `r2_buckets`.

    Args:
        storing: its blocking calls.
    """

    def __init__(self, storing: Storing) -> None:
        self._storing = storing

    def __repr__(self) -> str:
        return f"<Bucket {self._storing.name}>"

    async def head(self, key: str) -> R2Object | None:
        """Return an object without its content; None when there is none."""
        try:
            found, _ = await asyncio.to_thread(self._storing.get, checked_key(key), {"head": True})
        except FileNotFoundError:
            return None
        return found

    async def get(
        self, key: str, *, offset: int = 0, length: int | None = None
    ) -> R2ObjectBody | None:
        """Return an object, its content to be read in pieces; None when there is none.

        Args:
            key: its name.
            offset: begin at this byte.
            length: read so many bytes; None: to the end.

        Raises:
            ValidationFailedError: the key or the part is impossible.
            FilesystemError: the bucket does not answer, or refuses.
        """
        if offset < 0 or (length is not None and length < 1):
            raise ValidationFailedError("a part begins at 0 or later and has a byte or more")
        options: dict[str, object] = {}
        if length is not None:
            options["range"] = (offset, offset + length)
        elif offset:
            options["range"] = {"offset": offset}
        try:
            found, result = await asyncio.to_thread(self._storing.get, checked_key(key), options)
        except FileNotFoundError:
            return None
        start, end = result.range
        return R2ObjectBody(found, self._storing.content(result), (start, end - start))

    async def put(
        self,
        key: str,
        value: Content,
        *,
        http_metadata: Mapping[str, str] | None = None,
        custom_metadata: Mapping[str, str] | None = None,
    ) -> R2Object:
        """Store an object in place of one of this key; readers see the old one or the new one.

        Args:
            key: its name.
            value: text, bytes, or an asynchronous iterator of bytes; None: empty.
            http_metadata: `content_type`, `content_language`, `content_disposition`,
                `content_encoding`, `cache_control`.
            custom_metadata: of your own.

        Raises:
            ValidationFailedError: an argument is impossible.
            FilesystemError: the bucket does not answer, or refuses.
        """
        metadata = checked_metadata(http_metadata, custom_metadata)
        checked_key(key)
        with await spooled(value) as file:
            await asyncio.to_thread(self._storing.put, key, file, metadata)
        found = await self.head(key)
        if found is None:
            raise FileNotFoundError(f"{key} was deleted meanwhile")
        return found

    async def delete(self, keys: str | Sequence[str]) -> None:
        """Remove objects; those that are not there are none the less gone."""
        wanted = [keys] if isinstance(keys, str) else list(keys)
        if len(wanted) > MAX_DELETE:
            raise ValidationFailedError(f"at most {MAX_DELETE} keys are deleted at once")
        for key in [checked_key(key) for key in wanted]:
            await asyncio.to_thread(self._storing.delete, key)

    async def list(
        self,
        *,
        prefix: str = "",
        delimiter: str | None = None,
        cursor: str | None = None,
        limit: int = MAX_LIST,
    ) -> R2Objects:
        """Return a page of objects, in the order of their keys, without metadata.

        Args:
            prefix: only keys that begin so.
            delimiter: tell keys that have it after the prefix as one `delimited_prefixes` entry.
            cursor: of the page before.
            limit: most entries of the page, 1,000 at most.
        """
        limit = max(1, min(limit, MAX_LIST))
        return await asyncio.to_thread(self._page, prefix, delimiter, cursor, limit)

    def _page(
        self, prefix: str, delimiter: str | None, cursor: str | None, limit: int
    ) -> R2Objects:
        objects: list[R2Object] = []
        groups: dict[str, None] = {}
        last = cursor
        for entry in self._storing.entries(prefix, cursor):
            rest = entry.key[len(prefix) :]
            head, found, _ = rest.partition(delimiter) if delimiter else (rest, "", "")
            group = prefix + head + found if found else None
            if group not in groups and len(objects) + len(groups) == limit:
                return R2Objects(
                    objects=objects, truncated=True, cursor=last, delimited_prefixes=list(groups)
                )
            if group is None:
                objects.append(entry)
            else:
                groups[group] = None
            last = entry.key
        return R2Objects(objects=objects, delimited_prefixes=list(groups))

    async def create_multipart_upload(
        self,
        key: str,
        *,
        http_metadata: Mapping[str, str] | None = None,
        custom_metadata: Mapping[str, str] | None = None,
    ) -> MultipartUpload:
        """Begin an upload in parts; options as of `put`."""
        metadata = checked_metadata(http_metadata, custom_metadata)
        return await begun(self._storing, checked_key(key), metadata)

    def resume_multipart_upload(self, key: str, upload_id: str) -> MultipartUpload:
        """Go on with an upload, also one that another process began."""
        return MultipartUpload(self._storing, checked_key(key), upload_id)


def checked_metadata(http: Mapping[str, str] | None, custom: Mapping[str, str] | None) -> Metadata:
    """Return metadata as it is kept.

    Raises:
        ValidationFailedError: a name is unknown, a value is no text.
    """
    found = Metadata(strings("http_metadata", http), strings("custom_metadata", custom))
    if unknown := set(found.http) - HTTP_METADATA:
        raise ValidationFailedError(
            f"http_metadata has no {min(unknown)!r}",
            context={"field": "http_metadata"},
            suggestion=f"it has {', '.join(sorted(HTTP_METADATA))}",
        )
    return found
