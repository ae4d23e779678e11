"""Which entries of a tree a watch or a comparison is about."""

import zlib
from typing import Final

from atoll import errors
from atoll.agent.files import globs, spools
from atoll.agent.files.requests import Fields

DEFAULT_EXCLUDE: Final = (".git", "node_modules", ".DS_Store")


class Filter:
    """Include and exclude globs of one request; our own temporary files never count.

    An excluded directory is not looked into. An included one need not match itself: what is in
    it may.
    """

    def __init__(
        self, *, recursive: bool, include: list[str] | None, exclude: list[str] | None
    ) -> None:
        self.recursive = recursive
        self._key = repr((recursive, include, exclude))
        self._included = globs.matcher(include) if include else None
        excluded = () if include else DEFAULT_EXCLUDE if exclude is None else exclude
        self._excluded = globs.matcher(excluded)

    def digest(self) -> str:
        """Return a short text that differs between different options."""
        return f"{zlib.crc32(self._key.encode('utf-8', 'surrogatepass')):08x}"

    def enters(self, name: bytes, relative: bytes, _is_directory: bool = False) -> bool:
        """Tell whether an entry, and what is below it, is looked at at all."""
        return not spools.is_temporary(name) and not self._excluded(relative)

    def reports(self, relative: bytes) -> bool:
        """Tell whether an entry that is looked at is reported itself."""
        return self._included is None or self._included(relative)


def from_request(fields: Fields) -> Filter:
    """Return the filter a request asks for.

    Raises:
        ValidationFailedError: it has both include and exclude.
    """
    include, exclude = fields.texts("include"), fields.texts("exclude")
    if include and exclude:
        raise errors.ValidationFailedError(
            "include and exclude exclude each other", context={"field": "include"}
        )
    return Filter(
        recursive=fields.flag("recursive", default=True), include=include, exclude=exclude
    )
