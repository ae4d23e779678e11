"""The variables of a sandbox: what its commands start with, and what a running agent is told.

The image's, then the namespace's, then the option `env`, then `set_env_vars`: later ones win, None
unsets. A start gets the result at once. What changes afterwards is sent as the difference to what
the agent was last told, also after a sleep: sessions that were carried over it know the old values.
"""

import asyncio
from collections.abc import Mapping

import msgspec

from atoll.engine.commands import sessions
from atoll.engine.link.link import Endpoint
from atoll.engine.store.entry import Entry
from atoll.engine.store.record import Record
from atoll.wire.process import EnvRequest
from atoll.wire.sandbox import NamespaceConfig

Variables = Mapping[str, str | None]


def effective(*layers: Variables) -> dict[str, str]:
    """Return what results from *layers*. Pure."""
    merged: dict[str, str | None] = {}
    for layer in layers:
        merged |= layer
    return {name: value for name, value in merged.items() if value is not None}


def difference(told: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str | None]:
    """Return what makes *now* of *told*. Pure."""
    return {name: now.get(name) for name in {**told, **now} if told.get(name) != now.get(name)}


def layers(namespace: NamespaceConfig, record: Record) -> tuple[Variables, ...]:
    """Return what is put over the image's own: of secrets their placeholders. Pure."""
    placed = record.egress.placeholders
    inherited = {name: placed.get(name) for name in namespace.secrets}
    own = {name: placed.get(name) for name in record.wanted.secrets or {}}
    return namespace.env, inherited, record.wanted.env or {}, own, record.env


class Teller:
    """Tells the agent of one sandbox, one change at a time.

    Args:
        entry: its record, which knows what was told.
    """

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._lock = asyncio.Lock()

    async def tell(self, endpoint: Endpoint, namespace: NamespaceConfig, given: Variables) -> None:
        """Send what the agent does not know yet.

        Args:
            given: sent in any case: sessions may have changed them since they were told.

        Raises:
            LinkError: it does not answer; the next call sends it.
        """
        async with self._lock:
            record = self._entry.record
            if record is None or record.in_force is None:
                return
            now = effective(record.in_force.base_env, *layers(namespace, record))
            changed = difference(record.in_force.env, now)
            if changed or given:
                wanted = changed | {name: now.get(name) for name in given}
                await sessions.set_env(endpoint, EnvRequest(env=wanted))
            if changed:
                await self._entry.change(lambda old: _told(old, now))


def _told(record: Record, now: dict[str, str]) -> dict[str, object]:
    if record.in_force is None:  # destroyed meanwhile
        return {}
    return {"in_force": msgspec.structs.replace(record.in_force, env=now)}
