"""API keys and the record of who did what, on the wire.

The text of a key crosses the wire once, in the answer that made it; after that only its id does.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from atoll.wire.base import Millis, Request, Result, Whole


class Scope(StrEnum):
    """What a key must allow for an operation; each allows what those before it do."""

    READ = "read"
    RUN = "run"
    ADMIN = "admin"


Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern="^[^\\x00-\\x1f\\x7f]+$")]
Rate = Annotated[float, msgspec.Meta(gt=0, le=1e6)]  # requests a second
Places = Annotated[int, msgspec.Meta(gt=0, le=1_000_000)]  # requests at once


class CreateKey(Request, frozen=True, kw_only=True):
    """A new key. Without `namespace` it is for all of them; limits of None are the engine's."""

    name: Name
    scope: Scope = Scope.RUN
    namespace: str | None = None
    expires_in_ms: Millis | None = msgspec.field(default=None, name="expiresIn")
    rate: Rate | None = None  # requests a second
    concurrency: Places | None = None  # requests at once


class KeyInfo(Result, frozen=True, kw_only=True):
    """A key without its text, which nobody has but its holder."""

    id: str
    name: str
    scope: Scope
    namespace: str | None = None
    created_at: datetime
    expires_at: datetime | None = None
    rate: float | None = None
    concurrency: int | None = None


class CreatedKey(Result, frozen=True, kw_only=True):
    """The only answer that has the text of a key."""

    key: str
    info: KeyInfo


class KeyList(Result, frozen=True, kw_only=True):
    """All keys of the store; the one of the settings is not among them."""

    keys: list[KeyInfo]


class AuditQuery(Request, frozen=True, kw_only=True):
    """Which records, newest first. `before` is the `cursor` of the page before."""

    namespace: str | None = None
    caller: str | None = None
    operation: str | None = None
    before: Whole | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100


class AuditRecord(Result, frozen=True, kw_only=True, omit_defaults=True):
    """One mutating call: who, what, when, and how it was answered.

    `caller` is the id of a key, "settings" for the key of the settings, or "owner" for the unix
    socket and this machine's own programs. `target` holds what the path names. `status` is that
    of the answer, 0 where the caller left before there was one. Never a body, a query or a header.
    """

    number: int
    at: datetime
    caller: str
    operation: str
    target: dict[str, str] = msgspec.field(default_factory=dict)
    status: int
    code: str | None = None
    request_id: str
    client: str | None = None


class AuditPage(Result, frozen=True, kw_only=True):
    """Records, newest first; `cursor` is None on the last page."""

    records: list[AuditRecord]
    cursor: int | None = None
