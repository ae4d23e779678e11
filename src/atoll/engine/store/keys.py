"""API keys: made, looked up and revoked. The store has their hashes, nobody but the holder the text.

A key's text names the key (its id) and then proves it (its secret), so one comparison decides and
its time tells nothing about other keys. Secrets are 160 random bits: a plain hash is enough for
what cannot be guessed. All keys are in memory, since every request needs one; the store is read
once.
"""

import hashlib
import hmac
import re
import secrets
from datetime import UTC, datetime, timedelta

import msgspec

from atoll.engine.store.store import Store
from atoll.errors import KeyNotFoundError, ResourceBusyError
from atoll.wire import ids
from atoll.wire.keys import CreatedKey, CreateKey, KeyInfo

MAX_KEYS = 10_000
"""All of them are in memory; a listing is one answer."""

_TEXT = re.compile(r"atoll_([0-9a-z]{12})_([0-9a-z]{40})")


class _Stored(msgspec.Struct, frozen=True):
    hash: str
    info: KeyInfo


NOBODY = hashlib.sha256(secrets.token_bytes(32)).hexdigest()
"""What a key of an unknown id is compared with: that takes as long as a wrong secret."""


class Keys:
    """The keys of one engine.

    Args:
        store: an open store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, _Stored] = {}

    async def load(self) -> None:
        """Read the store."""
        rows = await self._store.read("SELECT id, body FROM keys", ())
        self._known = {id: msgspec.json.decode(body, type=_Stored) for id, body in rows}

    def __bool__(self) -> bool:
        """Whether there is a key, also one that has expired: its end must not open the engine."""
        return bool(self._known)

    def holder(self, text: str, now: datetime | None = None) -> KeyInfo | None:
        """Return the key that *text* is, or None for one that is unknown, revoked or expired."""
        match = _TEXT.fullmatch(text)
        found = self._known.get(match[1]) if match else None
        proven = hmac.compare_digest(found.hash if found else NOBODY, hashed(text))
        if not found or not proven:
            return None
        ends = found.info.expires_at
        return found.info if ends is None or ends > (now or datetime.now(UTC)) else None

    async def create(self, wanted: CreateKey) -> CreatedKey:
        """Make a key; it works when this returns.

        Raises:
            ValidationFailedError: the namespace cannot be one.
            ResourceBusyError: there are `MAX_KEYS` already.
        """
        if wanted.namespace is not None:
            ids.check_namespace(wanted.namespace)
        if len(self._known) >= MAX_KEYS:
            raise ResourceBusyError(
                f"there are {MAX_KEYS} keys", context={"limit": MAX_KEYS},
                suggestion="revoke those that are not used",
            )  # fmt: skip
        id, now = secrets.token_hex(6), datetime.now(UTC)
        text = f"atoll_{id}_{secrets.token_hex(20)}"
        lifetime = wanted.expires_in_ms
        info = KeyInfo(
            id=id,
            name=wanted.name,
            scope=wanted.scope,
            namespace=wanted.namespace,
            created_at=now,
            expires_at=now + timedelta(milliseconds=lifetime) if lifetime is not None else None,
            rate=wanted.rate,
            concurrency=wanted.concurrency,
        )
        stored = _Stored(hashed(text), info)
        await self._store.execute(
            "INSERT INTO keys VALUES (?, ?)", (id, msgspec.json.encode(stored))
        )
        self._known[id] = stored
        return CreatedKey(key=text, info=info)

    def listing(self) -> list[KeyInfo]:
        """Return all keys, the oldest first."""
        return sorted((key.info for key in self._known.values()), key=lambda key: key.created_at)

    async def revoke(self, id: str) -> None:
        """Forget a key: the next request with it is refused.

        Raises:
            KeyNotFoundError: there is no such key.
        """
        if id not in self._known:
            raise KeyNotFoundError(
                f"no key {id!r}", context={"key": id}, suggestion="`atoll keys list` lists them"
            )
        await self._store.execute("DELETE FROM keys WHERE id = ?", (id,))
        self._known.pop(id, None)


def hashed(text: str) -> str:
    """Return the form in which keys are kept."""
    return hashlib.sha256(text.encode()).hexdigest()
