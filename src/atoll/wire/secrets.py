"""Secrets on the wire: values that exist outside of sandboxes only.

A value crosses the wire once, on its way in; no answer ever has it.
"""

from datetime import datetime
from typing import Annotated

import msgspec

from atoll.wire.base import Request, Result

NAME = "^[A-Za-z_][A-Za-z0-9_.-]{0,99}$"
"""Names of secrets: like variables', for most of them are called so."""

MAX_VALUE = 64 << 10
"""Characters of one: far above what a header may have."""

Name = Annotated[str, msgspec.Meta(pattern=NAME)]
Hosts = Annotated[list[str], msgspec.Meta(max_length=100)]


class PutSecret(Request, frozen=True, kw_only=True):
    """Keep a value under a name, in place of an older one.

    Args:
        value: what is put in on the way out.
        hosts: patterns of those that sandboxes may be given it for at all; empty: whichever a
            sandbox's options name.
    """

    value: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_VALUE)]
    hosts: Hosts = msgspec.field(default_factory=list)

    def __repr__(self) -> str:
        return f"PutSecret(hosts={self.hosts!r})"


class SecretInfo(Result, frozen=True, kw_only=True):
    """A secret without its value."""

    name: str
    hosts: list[str] = msgspec.field(default_factory=list)
    updated_at: datetime


class SecretList(Result, frozen=True, kw_only=True):
    """All secrets of a namespace, by name."""

    secrets: list[SecretInfo]


class SecretUse(Request, frozen=True, kw_only=True):
    """What a variable stands for: a secret, put in for requests to these hosts only."""

    name: Name
    hosts: Annotated[list[str], msgspec.Meta(min_length=1, max_length=100)]
