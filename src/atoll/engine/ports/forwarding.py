"""One exposed port as visitors reach it: whether it forwards now, its connections, its log."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from atoll.engine.lifecycle.activity import Use
from atoll.engine.link.link import Endpoint, LinkError
from atoll.engine.ports.exposures import Exposure
from atoll.engine.processes import ports as probes
from atoll.engine.store import record as sandboxes
from atoll.errors import (
    ContainerUnavailableError,
    InvalidTokenError,
    ServiceNotRespondingError,
    StalePreviewUrlError,
)
from atoll.proxy.access import Access
from atoll.wire.agent import CONNECT_TIMEOUT
from atoll.wire.ports import Visit
from atoll.wire.sandbox import State

if TYPE_CHECKING:
    from atoll.engine.ports.ports import Ports
    from atoll.engine.sandbox import Sandbox

MAX_CONNECTIONS = 1_024
"""Open connections of one preview: a page with hundreds of visitors, a fraction of what the engine
can hold, so that one preview under load leaves room for the others."""

MAX_DIALS = 4
"""Connections of one preview that are being opened at once: each takes a thread for 0.3 ms."""

MAX_VISITS = 500
"""Entries of the access log of one preview, about 300 bytes each; in memory only."""

Cut = Callable[[], None]


class Forwarding:
    """One exposed port as visitors reach it.

    Args:
        exposure: what the store has.
        live: the sandboxes that have a container.
    """

    def __init__(
        self, exposure: Exposure, live: "dict[tuple[str, str], Sandbox]", ports: "Ports"
    ) -> None:
        self.exposure = exposure
        self.revoked = False
        self.visits: deque[Visit] = deque(maxlen=MAX_VISITS)
        self._live = live
        self._ports = ports
        self._open: set[Cut] = set()
        self._dials = asyncio.Semaphore(MAX_DIALS)

    @property
    def sandbox_id(self) -> str:
        """The sandbox's id."""
        return self.exposure.sandbox

    @property
    def namespace(self) -> str:
        """The sandbox's namespace."""
        return self.exposure.namespace

    @property
    def port(self) -> int:
        """The port inside."""
        return self.exposure.port

    @property
    def access(self) -> Access:
        """Who may visit."""
        found = self.exposure
        return Access(public=found.public, auth=found.auth, secret=found.secret)

    def active(self) -> bool:
        """Whether it forwards now."""
        return self._running() is not None and not self.exposure.over(sandboxes.now())

    def _running(self) -> "tuple[Sandbox, Endpoint] | None":
        box = self._live.get((self.exposure.namespace, self.exposure.sandbox))
        endpoint = box.endpoint if box and box.is_in(State.RUNNING) else None
        if box is None or endpoint is None or endpoint.generation != self.exposure.generation:
            return None
        return box, endpoint

    def check(self) -> None:
        """Refuse what does not forward now.

        Raises:
            InvalidTokenError: it was revoked, or its time is over.
            StalePreviewUrlError: the sandbox does not run, or was started again since.
        """
        if self.revoked:
            raise InvalidTokenError("the preview was revoked", context={"port": self.port})
        if self.exposure.over(sandboxes.now()):
            raise InvalidTokenError("the preview has expired", context={"port": self.port})
        if self._running() is None:
            raise StalePreviewUrlError(
                f"sandbox {self.sandbox_id!r} does not run, or was started again since",
                context={"sandbox": self.sandbox_id, "port": self.port},
                suggestion="expose the port again: the address stays the same",
            )

    async def dial(self) -> socket.socket:
        """Return a connection to the port.

        Raises:
            StalePreviewUrlError: the sandbox has ended.
            ServiceNotRespondingError: nothing takes connections there.
        """
        self.check()
        _, endpoint = self._running() or (None, None)
        if endpoint is None:
            raise AssertionError("checked above")
        async with self._dials:
            return await connect(endpoint, self.port)

    def touch(self) -> None:
        """Take note of traffic: it is activity."""
        if box := self._live.get((self.exposure.namespace, self.exposure.sandbox)):
            box.activity.note(Use.PREVIEW_TRAFFIC)

    def waiting(self) -> AbstractContextManager[None]:
        """Hold off sleep while an answer is awaited."""
        return _during(self._live.get((self.exposure.namespace, self.exposure.sandbox)))

    @contextmanager
    def connected(self, cut: Cut) -> Iterator[None]:
        """Count an open connection; *cut* ends it, when the exposure does.

        Raises:
            ContainerUnavailableError: there are `MAX_CONNECTIONS`.
        """
        if len(self._open) >= MAX_CONNECTIONS:
            raise ContainerUnavailableError(
                "the preview has too many connections",
                context={"reason": "capacity", "limit": MAX_CONNECTIONS},
                retry_after=5.0,
            )
        self._open.add(cut)
        timer = self._cut_at_end(cut)
        try:
            yield
        finally:
            self._open.discard(cut)
            if timer:
                timer.cancel()

    def _cut_at_end(self, cut: Cut) -> asyncio.TimerHandle | None:
        end = self.exposure.expires_at
        if end is None:
            return None
        left = (end - sandboxes.now()).total_seconds()
        return asyncio.get_running_loop().call_later(max(0.0, min(left, 86_400.0)), cut)

    def revoke(self) -> None:
        """Forward nothing any more, whoever still has this object."""
        self.revoked = True
        self.cut()

    def cut(self) -> None:
        """End all open connections."""
        for cut in list(self._open):
            cut()

    async def enter(self, key: str) -> bool:
        """Use up a one-time link; return whether there was one."""
        return await self._ports.use_link(self, key)


@contextmanager
def _during(box: "Sandbox | None") -> Iterator[None]:
    if box is None:
        yield
        return
    with box.activity.during(Use.PREVIEW):
        yield


async def connect(endpoint: Endpoint, port: int) -> socket.socket:
    """Return a connection to *port* inside, on 127.0.0.1 (also what listens on 0.0.0.0) or ::1.

    Raises:
        ServiceNotRespondingError: nothing takes connections there.
    """
    try:
        dial = await probes.connector(endpoint)
        for address in probes.ADDRESSES:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    return await dial(address, port)
            except (OSError, TimeoutError) as error:
                failure: Exception = error
    except LinkError as error:
        failure = error
    raise ServiceNotRespondingError(
        f"nothing takes connections on port {port}",
        context={"port": port},
        suggestion=f"start a server on 127.0.0.1:{port} (or 0.0.0.0) in the sandbox",
    ) from failure
