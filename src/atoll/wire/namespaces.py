"""Which namespaces an engine has, on the wire. For its administrators."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from atoll.wire.base import Request, Result


class NamespaceQuery(Request, frozen=True, kw_only=True):
    """Which namespaces to list, in order of name; `cursor` is that of the page before."""

    cursor: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100


class NamespaceInfo(Result, frozen=True, kw_only=True):
    """A namespace that has something: sandboxes, what was kept of them, or a configuration."""

    name: str
    sandboxes: int
    running: int
    configured: bool


class NamespacePage(Result, frozen=True, kw_only=True):
    """One page of a listing, an iterable of its entries; `cursor` is None on the last."""

    namespaces: list[NamespaceInfo]
    cursor: str | None = None

    def __iter__(self) -> Iterator[NamespaceInfo]:
        return iter(self.namespaces)
