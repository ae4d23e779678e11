"""What a call is made on: a sandbox as a whole, or one of its sessions.

Making a target does no I/O. The options given to `get_sandbox` are sent once, before the first
operation; without options there is no extra request, because every operation creates or wakes.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from atoll.sdk import _io, _shared
from atoll.sdk._sync import transport
from atoll.sdk._results import ContainerTimeouts
from atoll.wire import ops
from atoll.wire.base import Empty, Request, Result
from atoll.wire.sandbox import SandboxOptions

ResultT = TypeVar("ResultT", bound=Result)


class Address:
    """One sandbox at one engine, and whether its options were sent.

    With a `life` it is that one sandbox; without it, whichever has the name by then.
    """

    def __init__(
        self,
        via: transport.Transport,
        namespace: str,
        sandbox_id: str,
        options: SandboxOptions | None = None,
        ready: float = _shared.READY_SECONDS,
        timeouts: ContainerTimeouts | None = None,
    ) -> None:
        self.transport = via
        self.namespace = namespace
        self.id = sandbox_id
        self.ready = ready
        self.timeouts = timeouts or ContainerTimeouts()
        self.life: str | None = None
        self._options = options
        self._unsent = options is not None
        self._lock = _io.SharedLock()

    @property
    def params(self) -> dict[str, str]:
        """Values for the placeholders of paths, and the life that is meant."""
        found = {"namespace": self.namespace, "id": self.id}
        return found | {"life": self.life} if self.life else found

    def of_life(self, life: str | None) -> "Address":
        """Return the address of this one sandbox, which has its options by now."""
        found = Address(
            self.transport, self.namespace, self.id, ready=self.ready, timeouts=self.timeouts
        )
        found.life = life
        return found

    def ensure(self) -> None:
        """Send the options if there are any that were not sent."""
        if not self._unsent or self._options is None:
            return
        with self._lock:
            if self._unsent:
                self.transport.call(ops.ENSURE, self.params, self._options, ready=self.ready)
                self._unsent = False

    def destroy(self) -> None:
        """Destroy the sandbox; a later one of this id gets the options again."""
        self.transport.call(ops.DESTROY, self.params, Empty(), ready=self.ready)
        self._unsent = self._options is not None


class Target:
    """Base of `Sandbox` and `Session`: where its calls go to."""

    def __init__(self, address: Address, session: str | None = None) -> None:
        self._address = address
        self._session = session

    def _call(
        self,
        op: ops.Op[Any, ResultT],
        request: Request,
        *,
        content: transport.Body | None = None,
        more: Mapping[str, str] | None = None,
        timeout: float | None = transport.ANSWER_SECONDS,
    ) -> ResultT:
        """Make a call.

        Args:
            op: the operation.
            request: its fields.
            content: body of an upload.
            more: further values for the placeholders of its path.
            timeout: seconds the answer may take; None: any time.
        """
        _shared.check_request(request)  # before the options of the sandbox are sent
        self._address.ensure()
        params = self._address.params | dict(more or {})
        return self._address.transport.call(
            op, params, request, content=content, ready=self._address.ready, timeout=timeout
        )
