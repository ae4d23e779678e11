"""The user namespaces of containers, each made while other things are got ready for its start.

Its own root owns it, not root of the host: what the kernel counts by user (inotify instances, queued
signals, timers, message queues) it also counts for the owner of the namespace. With one owner, one
sandbox took all of every other and of root on the host.
"""

import os

from atoll.host import linux


class UserNamespaces:
    """Namespaces that no container runs in yet, by host_ref. Blocking."""

    def __init__(self) -> None:
        self._ready: dict[str, int] = {}

    def prepare(self, host_ref: str, id_base: int, id_count: int) -> None:
        """Make the namespace of *host_ref*, unless it is made."""
        if host_ref not in self._ready:
            self._ready[host_ref] = _made(id_base, id_count)

    def take(self, host_ref: str, id_base: int, id_count: int) -> int:
        """Return its descriptor, which is the caller's from now on; make it now if need be."""
        ready = self._ready.pop(host_ref, None)
        return _made(id_base, id_count) if ready is None else ready

    def drop(self, host_ref: str) -> None:
        """Close what nobody took."""
        if (ready := self._ready.pop(host_ref, None)) is not None:
            os.close(ready)


def _made(id_base: int, id_count: int) -> int:
    ids = f"0 {id_base} {id_count}"
    return linux.user_namespace(ids, ids, owner=id_base)
