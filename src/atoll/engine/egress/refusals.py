"""Events of what sandboxes were refused: the first of each kind; the network log has them all.

What the gateway tells is input, so the rate is kept here too.
"""

import time
from collections import OrderedDict

import structlog

from atoll.engine.store.store import Store
from atoll.errors import SandboxError
from atoll.host.tasks import Tasks
from atoll.network.gateway.news import News
from atoll.network.gateway.protocol import Decision
from atoll.wire.sandbox import State

TYPE = "refused"
"""Of these events."""

MAX_REASON = 300
"""Characters of an event's reason."""

MAX_SANDBOXES = 4_096
"""Sandboxes whose news are told apart; the one heard of least recently gives way."""

MAX_ADDING = 256
"""Events that are being written; more are lost."""

_log = structlog.get_logger(__name__)


class Refusals:
    """Makes the events.

    Args:
        store: of the records and of events.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._news: OrderedDict[str, News] = OrderedDict()
        self._adding = Tasks()
        self._closed = False

    def hear(self, key: str, decision: Decision) -> None:
        """Make an event of *decision* about the sandbox *key*, if it is a refusal and new."""
        if decision.verdict != "refused" or self._closed or len(self._adding) >= MAX_ADDING:
            return
        if self._of(key).has(decision.kind, time.monotonic()):
            self._adding.begin(self._write(key, _reason(decision)), name="refusal")

    def forget(self, key: str) -> None:
        """What the sandbox *key* was refused is nothing to the next one of its name."""
        self._news.pop(key, None)

    async def close(self) -> None:
        """Hear nothing more; return when no event is being written."""
        self._closed = True
        await self._adding.finish()

    def _of(self, key: str) -> News:
        found = self._news.pop(key, None) or News()
        self._news[key] = found
        if len(self._news) > MAX_SANDBOXES:
            self._news.popitem(last=False)
        return found

    async def _write(self, key: str, reason: str) -> None:
        namespace, _, id = key.partition("/")
        try:
            record = await self._store.get(namespace, id)
            if record and record.state is not State.DESTROYED:
                await self._store.events.add(record, TYPE, reason)
        except SandboxError as error:
            _log.warning("a refusal is no event", sandbox=key, error=str(error))


def _reason(decision: Decision) -> str:
    host, port, rule = decision.kind
    return f"{host}:{port}: {rule}"[:MAX_REASON] if port else f"{host}: {rule}"[:MAX_REASON]
