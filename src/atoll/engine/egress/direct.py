"""The log of connections that go past the gateway, in the gateway's own form.

Lines wait a moment and are written in a thread: a disk that is slow holds nobody up, and one that is
full loses lines and nothing else.
"""

import asyncio
from collections import OrderedDict
from pathlib import Path

from atoll.network.gateway import log
from atoll.network.gateway.protocol import Decision

PAUSE = 0.1
"""Seconds that lines are gathered."""

GRACE = 2.0
"""Seconds after the end of a container in which ends of its connections are still told."""

MAX_WAITING = 10_000
"""Lines that wait; more are lost."""

MAX_OPEN = 128
"""Files that are open at the same time."""


class DirectLog:
    """Writes the logs of all sandboxes of an engine.

    Args:
        folder: where they are; made when the first line is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._names: dict[str, str] = {}
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._logs: OrderedDict[str, log.Log] = OrderedDict()
        self._waiting: list[tuple[str, Decision]] = []
        self._writing: asyncio.Task[None] | None = None

    def know(self, host_ref: str, addresses: tuple[str, ...], name: str) -> None:
        """Write what *addresses* do to the log *name*."""
        self._addresses[host_ref] = addresses
        self._names |= dict.fromkeys(addresses, name)

    def forget(self, host_ref: str) -> None:
        """The container has ended. What its connections had is told for a moment more."""
        addresses = self._addresses.pop(host_ref, ())
        if addresses:
            loop = asyncio.get_running_loop()
            loop.call_later(GRACE, self._drop, addresses, self._names.get(addresses[0]))

    def _drop(self, addresses: tuple[str, ...], name: str | None) -> None:
        for address in addresses:
            if self._names.get(address) == name:  # else it is another's already
                self._names.pop(address, None)

    def tell(self, source: str, decision: Decision) -> None:
        """Add a line, unless the address is nobody's."""
        name = self._names.get(source)
        if name is None or len(self._waiting) >= MAX_WAITING:
            return
        self._waiting.append((name, decision))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(), name="direct connections")

    async def remove(self, name: str) -> None:
        """Remove a log, and what waits to be written to it."""
        self._names = {address: n for address, n in self._names.items() if n != name}
        await self.settle()
        if found := self._logs.pop(name, None):
            found.close()
        await asyncio.to_thread(log.remove, self.folder, name)

    async def settle(self) -> None:
        """Return when nothing waits."""
        while self._writing and not self._writing.done():
            await asyncio.wait([self._writing])

    async def close(self) -> None:
        """Write what waits and close all files."""
        await self.settle()
        while self._logs:
            self._logs.popitem()[1].close()

    async def _write(self) -> None:
        while self._waiting:
            await asyncio.sleep(PAUSE)
            lines, self._waiting = self._waiting, []
            await asyncio.to_thread(self._append, lines)

    def _append(self, lines: list[tuple[str, Decision]]) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, decision in lines:
            found = self._logs.pop(name, None) or log.Log(self.folder, name)
            self._logs[name] = found
            found.write(decision)
        while len(self._logs) > MAX_OPEN:
            self._logs.popitem(last=False)[1].close()
