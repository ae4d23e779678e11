"""A connection that carries raw bytes, by way of the engine: to a port inside, or to previews."""

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from atoll.errors import ServiceNotRespondingError, VersionMismatchError
from atoll.sdk import _shared
from atoll.sdk._sync.transport import ConnectionLostError, Transport
from atoll.wire import ops
from atoll.wire.base import Request
from atoll.wire.ports import RAW

if TYPE_CHECKING:
    import httpcore2
    import httpx2

_READ = 1 << 18


class RawConnection:
    """One connection. Made by `open`; close it."""

    def __init__(
        self,
        opened: "AbstractContextManager[httpx2.Response]",
        stream: "httpcore2.NetworkStream",
    ) -> None:
        self._opened = opened
        self.stream = stream
        self.closed = False

    @classmethod
    def open(
        cls,
        via: Transport,
        op: ops.Op[Any, Any],
        params: dict[str, str],
        request: Request,
        *,
        ready: float = _shared.READY_SECONDS,
    ) -> "RawConnection":
        """Ask the engine for a connection.

        Raises:
            SandboxError: it refuses, with the reason.
            OperationInterruptedError: the connection to the engine was lost.
        """
        call = _shared.build_call(op, params, request)
        call = replace(call, headers={**call.headers, "connection": "Upgrade", "upgrade": RAW})
        opened = via.send(call, ready=ready, timeout=None)
        try:
            answer = opened.__enter__()
        except ConnectionLostError as error:
            raise _shared.lost(op.name, str(error)) from error
        if answer.status_code != 101:
            opened.__exit__(None, None, None)
            raise VersionMismatchError(
                f"the engine answered {op.name} with HTTP {answer.status_code}",
                suggestion="is there a proxy in between that cannot change protocols?",
            )
        return cls(opened, answer.extensions["network_stream"])

    def read(self) -> bytes:
        """Return what has come; empty at the end.

        Raises:
            ServiceNotRespondingError: the connection broke.
        """
        import httpcore2

        try:
            return self.stream.read(_READ)
        except httpcore2.ReadError as error:
            raise ServiceNotRespondingError(f"the connection broke: {error}") from error

    def write(self, data: bytes) -> None:
        """Send *data*; raise as `read`."""
        import httpcore2

        try:
            self.stream.write(data)
        except httpcore2.WriteError as error:
            raise ServiceNotRespondingError(f"the connection broke: {error}") from error

    def close(self) -> None:
        """End the connection."""
        if not self.closed:
            self.closed = True
            self._opened.__exit__(None, None, None)
