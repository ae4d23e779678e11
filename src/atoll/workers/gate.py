"""The input gate of an object: when a call may begin.

Python code between two awaits runs alone anyway. The gate is for what must run alone across
awaits: `on_start`, `block_concurrency_while`, a transaction. While it is closed, no other call
begins; those under way go on, but storage makes them wait. A call that waits for a gate which is
held by a call that waits for it would never end: it is refused.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from atoll.errors import DeadlockError
from atoll.sdk import _calls

_inside: ContextVar[frozenset[object]] = ContextVar("atoll_gates", default=frozenset())


class Gate:
    """The gate of one object.

    Args:
        name: of the object, for errors.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._holder: tuple[object, str] | None = None  # and the call that closed it
        self._changed = asyncio.Event()

    @property
    def closed(self) -> bool:
        """Whether the gate is closed for the task that asks."""
        return self._holder is not None and self._holder[0] not in _inside.get()

    async def pass_through(self) -> None:
        """Wait until the gate is open.

        Raises:
            DeadlockError: it is held by a call that waits for this one.
        """
        while self.closed:
            self._check()
            await self._changed.wait()

    @property
    def waits_for_this(self) -> bool:
        """Whether it is held by a call that waits for what is done here."""
        return self._holder is not None and self._holder[1] in _calls.waiting.get()

    def _check(self) -> None:
        if self.waits_for_this:
            raise DeadlockError(
                f"a call to {self._name} waits for itself: the object lets nothing in until a"
                " call has ended which waits for this one",
                context={"object": self._name},
                suggestion="call your own methods directly (self.method()), and call others before"
                " or after a transaction, block_concurrency_while and on_start",
            )

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Close the gate while in the block; inside it is open. Blocks may be nested."""
        if self._holder and self._holder[0] in _inside.get():
            yield
            return
        await self.pass_through()
        token, calls = object(), _calls.waiting.get()
        self._holder = (token, calls[-1] if calls else "")
        self._changed.clear()
        outside = _inside.set(_inside.get() | {token})
        try:
            yield
        finally:
            _inside.reset(outside)
            self._open(token)

    def _open(self, token: object) -> None:
        if self._holder and self._holder[0] is token:
            self._holder = None
            self._changed.set()

    def force_open(self, call: str) -> None:
        """Open a gate that *call* closed: nobody waits for that call any more."""
        if self._holder and self._holder[1] == call:
            self._open(self._holder[0])
