"""A private engine of this program, shared with others that use the same state directory.

The protocol (who starts the engine, when it stops) is that of `atoll.server.lease`: a lease is an
open connection, so that a client that is killed gives its lease back too.
"""

import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from atoll.errors import ResourceBusyError, from_wire
from atoll.sdk import _aio, _shared
from atoll.sdk._async.environment import Environment
from atoll.sdk._async.transport import Transport

LEASE_SECONDS = 60.0
"""How long an engine may take until it is ready (it may have to unpack its first image)."""


class LocalTransport(Transport):
    """Holds a lease of the engine of a state directory; takes it with the first request."""

    def __init__(self, state_dir: Path, arguments: list[str]) -> None:
        socket_path = str(state_dir / "engine.sock")
        super().__init__(_shared.Endpoint("http://engine", socket_path))
        self._state_dir = state_dir
        self._arguments = arguments
        self._lease: socket.socket | None = None
        self._offer: dict[str, str] | None = None
        self._opening = _aio.SharedLock()

    async def open(self) -> None:
        """Take the lease, starting the engine if nobody did, or if it was killed meanwhile."""
        self.check_open()
        if self._lease is not None and _aio.is_open(self._lease):
            return
        async with self._opening:
            if self._lease is not None and not _aio.is_open(self._lease):
                self._lease.close()
                self._lease = None
            if self._lease is None:
                await self._take()
        if self.closed:  # by another task, meanwhile
            await self.aclose()
            self.check_open()

    async def _take(self) -> None:
        lease_path = self._state_dir / "lease.sock"
        deadline = _shared.Backoff(_aio.now() + LEASE_SECONDS, _aio.jitter)
        while True:
            taken = await _aio.in_thread(_aio.take_lease, lease_path, LEASE_SECONDS)
            if taken is not None:
                self._lease, hello = taken
                await self._tell()
                self.endpoint = _shared.Endpoint("http://engine", str(hello["socket"]))
                # An engine may stop right after it gave a lease; the next try starts another.
                self._reached = True
                return
            await self._start()
            delay = deadline.wait(_aio.now())
            if delay is None:
                raise _shared.unreachable(self.endpoint, "it was started and gave no lease")
            await _aio.sleep(delay)

    async def _start(self) -> None:
        self._state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = self._state_dir / "engine.log"
        hello = await _aio.in_thread(_aio.start_engine, self._arguments, log)
        if "error" in hello:
            error = from_wire(hello["error"])
            if not isinstance(error, ResourceBusyError):  # else another client was faster
                raise error
        elif not hello:
            raise _shared.unreachable(self.endpoint, _shared.last_lines(log.read_bytes()))

    async def offer(self, folders: Mapping[str, Path]) -> None:
        """Have the engine know these local buckets, as long as this client uses it."""
        self._offer = {binding: str(folder) for binding, folder in folders.items()}
        if self._lease is not None:
            await self._tell()

    async def _tell(self) -> None:
        if self._offer is not None and self._lease is not None:
            with suppress(OSError):  # it ended meanwhile; the next one is told
                await _aio.in_thread(_aio.offer, self._lease, self._offer, LEASE_SECONDS)

    async def aclose(self) -> None:
        """Close the connections, then give the lease back: the last one stops the engine."""
        await super().aclose()
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.close()


def local(config: str | Path | None = None, *, state_dir: str | Path | None = None) -> Environment:
    """Return a private engine: a child process that is started with the first call.

    Programs that use the same state directory share one engine, and the last to leave stops it;
    the sandboxes they started or used sleep then; files stay. Use it in an ``async with`` block.

    Args:
        config: path of an ``atoll.toml``; default: ``ATOLL_CONFIG``, else
            ``/etc/atoll/atoll.toml`` if it is there.
        state_dir: where the engine keeps everything; default: what ``ATOLL_STATE_DIR`` or *config*
            says, else ``/var/lib/atoll``.

    Raises:
        InvalidConfigError: *config* cannot be read, or *state_dir* is no path.
        RuntimeNotAvailableError: (by the first call) this host lacks what containers need, or
            this is not root; the suggestion says what to do. `atoll doctor` tells more.
    """
    environment = _aio.environment()
    written = _shared.read_config(config, environment)
    directory = _shared.state_directory(state_dir, written, environment)
    arguments = ["--local", "--state-dir", str(directory)]
    if config is not None:
        arguments += ["--config", str(Path(config).absolute())]
    return Environment(LocalTransport(directory, arguments))
