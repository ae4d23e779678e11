"""Values that only the gateway ever puts into a request: kept encrypted, told to nobody.

They lie in the store, sealed with a key in a file beside it: a copy of the store, or of a page of it
in a log, has no value. Whoever has the whole state directory has both, as root of this host has.
Where the key is lost, the engine works and the values are lost: what needs one does not start.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from atoll.engine.egress.seal import Seal
from atoll.engine.store.store import Store
from atoll.errors import (
    ForbiddenError,
    InvalidConfigError,
    ResourceBusyError,
    SecretNotFoundError,
    ValidationFailedError,
)
from atoll.network import hosts
from atoll.network.policy import Secret
from atoll.wire import ids
from atoll.wire.secrets import Name, PutSecret, SecretInfo, SecretUse

MAX_SECRETS = 1_000
"""Of one namespace. All values are in memory."""

_log = structlog.get_logger(__name__)


class _Stored(msgspec.Struct, frozen=True):
    sealed: bytes
    hosts: list[str]
    updated_at: datetime


class _Known(NamedTuple):
    """`value`: None: it cannot be opened any more."""

    value: str | None
    info: SecretInfo


class Secrets:
    """The secrets of one engine.

    Args:
        store: an open store.
        key_file: where the key is, 0600; made with the first secret.
    """

    def __init__(self, store: Store, key_file: Path) -> None:
        self._store = store
        self._seal = Seal(key_file)
        self._known: dict[tuple[str, str], _Known] = {}

    async def load(self) -> None:
        """Read the store."""
        rows = await self._store.read("SELECT namespace, name, body FROM secrets", ())
        for namespace, name, body in rows:
            stored = msgspec.json.decode(body, type=_Stored)
            known = _Known(self._seal.open(stored.sealed), _info(name, stored))
            self._known[namespace, name] = known
        if lost := sum(known.value is None for known in self._known.values()):
            _log.error("secrets cannot be opened", count=lost, key=str(self._seal.file))

    async def put(self, namespace: str, name: str, wanted: PutSecret) -> SecretInfo:
        """Keep a value.

        Raises:
            ValidationFailedError: the name or a host cannot be one.
            ResourceBusyError: the namespace has `MAX_SECRETS` already.
        """
        ids.check_namespace(namespace)
        _check_name(name)
        place = namespace, name
        if place not in self._known and len(await self.listing(namespace)) >= MAX_SECRETS:
            raise ResourceBusyError(
                f"there are {MAX_SECRETS} secrets",
                context={"limit": MAX_SECRETS},
                suggestion="delete those that are not used",
            )
        stored = _Stored(
            sealed=self._seal.close(wanted.value),
            hosts=list(map(hosts.canonical_pattern, wanted.hosts)),
            updated_at=datetime.now(UTC),
        )
        await self._store.execute(
            "INSERT OR REPLACE INTO secrets VALUES (?, ?, ?)",
            (namespace, name, msgspec.json.encode(stored)),
        )
        known = self._known[place] = _Known(wanted.value, _info(name, stored))
        return known.info

    async def listing(self, namespace: str) -> list[SecretInfo]:
        """Return a namespace's secrets by name, without their values."""
        found = [known.info for (of, _), known in self._known.items() if of == namespace]
        return sorted(found, key=lambda info: info.name)

    async def delete(self, namespace: str, name: str) -> None:
        """Forget a value.

        Raises:
            SecretNotFoundError: there is none.
        """
        if (namespace, name) not in self._known:
            raise _missing(namespace, name)
        await self._store.execute(
            "DELETE FROM secrets WHERE namespace = ? AND name = ?", (namespace, name)
        )
        self._known.pop((namespace, name), None)

    def check(self, namespace: str, uses: Mapping[str, SecretUse]) -> None:
        """Refuse what a start could not be given.

        Raises:
            SecretNotFoundError: a secret is not there.
            InvalidConfigError: its value cannot be opened any more.
            ForbiddenError: it is not for a host that it is used for.
        """
        for use in uses.values():
            known = self._known.get((namespace, use.name))
            if known is None:
                raise _missing(namespace, use.name)
            if known.value is None:
                raise self._lost(namespace, use.name)
            for host in use.hosts:
                if not _permitted(known.info, hosts.canonical_pattern(host)):
                    raise ForbiddenError(
                        f"secret {use.name} is not for {host}",
                        context={"secret": use.name, "host": host},
                        suggestion=f"it is for {', '.join(known.info.hosts)}",
                    )

    def resolved(
        self, namespace: str, uses: Mapping[str, SecretUse], placeholders: Mapping[str, str]
    ) -> tuple[Secret, ...]:
        """Return what the gateway is told: what is missing or not permitted has no value."""
        found = []
        for variable, use in uses.items():
            if placeholder := placeholders.get(variable):
                known = self._known.get((namespace, use.name))
                patterns = tuple(map(hosts.canonical_pattern, use.hosts))
                allowed = known is not None and all(_permitted(known.info, p) for p in patterns)
                value = (known.value or "") if known and allowed else ""
                found.append(Secret(use.name, placeholder, patterns, value))
        return tuple(found)

    def _lost(self, namespace: str, name: str) -> InvalidConfigError:
        return InvalidConfigError(
            f"secret {name!r} cannot be opened: the key it was sealed with is gone",
            context={"secret": name, "file": str(self._seal.file)},
            suggestion="bring the file back from a backup of the state directory and start the "
            f"engine again, or set the value again: {_how_to_put(namespace, name)}",
        )


def _permitted(info: SecretInfo, pattern: str) -> bool:
    """Tell whether whatever *pattern* means is among the secret's hosts."""
    return not info.hosts or any(hosts.matches(allowed, pattern) for allowed in info.hosts)


def _check_name(name: str) -> None:
    try:
        msgspec.convert(name, Name)
    except msgspec.ValidationError as error:
        raise ValidationFailedError(
            f"{name[:100]!r} is no name of a secret",
            context={"field": "secret"},
            suggestion="use letters, digits, '_', '-' and '.'",
        ) from error


def _info(name: str, stored: _Stored) -> SecretInfo:
    return SecretInfo(name=name, hosts=stored.hosts, updated_at=stored.updated_at)


def _missing(namespace: str, name: str) -> SecretNotFoundError:
    return SecretNotFoundError(
        f"there is no secret {name!r}",
        context={"namespace": namespace, "secret": name},
        suggestion=f"an administrator sets it: {_how_to_put(namespace, name)}",
    )


def _how_to_put(namespace: str, name: str) -> str:
    return f"atoll secret put {name} --namespace {namespace}"
