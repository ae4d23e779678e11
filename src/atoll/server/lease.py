"""Leases: how `local()` shares one engine of a state directory, and how the last to leave ends it.

Protocol, for the client side too (one unix stream socket, ``<state_dir>/lease.sock``, 0600):

1. The client connects. The engine sends one line of JSON when it is ready to serve:
   ``{"socket": "<unix socket of the API>", "pid": …, "engineId": "…", "version": "…"}``.
2. The client keeps the connection open as long as it uses the engine. The end of the connection,
   by close or by the death of the client, is the end of the lease. It may send lines of JSON,
   ``{"localBuckets": {"<binding>": "<folder>"}}``: what may be mounted as a local bucket as long as
   this lease lasts, each in place of the one before. The engine answers ``{}``.
3. An engine started with ``--local`` stops when its last lease ends (or when nobody came within
   `FIRST_LEASE` seconds of the ready line): it closes ``lease.sock`` first, puts the sandboxes to
   sleep that it started or used (others run on), then exits and so gives up the lock.
   ``atoll serve`` without it hands out leases too but does not care.

A client of `local()` does this:

1. Connect to ``lease.sock`` and read the line. Done if that works.
2. Else (no such file, refused, or closed before the line): start
   ``python -m atoll.cli.main serve --local --state-dir DIR --ready-fd N`` in its own session
   (Ctrl-C at the client's terminal is not for the engine), read one line of JSON from the pipe N:
   the line above, or ``{"error": <envelope>}``; then go to 1. An ``error`` with code
   ``RESOURCE_BUSY`` means that another client was faster: go to 1 as well. Any other error is the
   answer; the end of the pipe without a line means that the engine died: its stderr says why.

Every engine waits for the lock while the one that holds it is on its way out.

A path of a unix socket has at most 107 bytes. Both sides reach a longer one through
``/proc/self/fd/<descriptor of the directory>/lease.sock``.
"""

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec

FIRST_LEASE = 10.0
"""Seconds an engine of `local()` waits for its first lease."""

LINGER = 0.2
"""Seconds an engine of `local()` outlives its last lease. An engine that finds the lock taken asks
for a lease to see whether the holder stays; that question must not end a holder which is about
to get its first client."""


class Offer(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What a client has for the engine while it holds its lease."""

    local_buckets: dict[str, str]

    def folders(self) -> dict[str, Path]:
        """Return binding → folder."""
        return {binding: Path(folder) for binding, folder in self.local_buckets.items()}


Offered = Callable[[Mapping[str, Path]], AbstractContextManager[None]]


class Leases:
    """Counts the open lease connections; calls *ended* once when the last one is gone.

    Args:
        listener: listening unix socket.
        hello: what every client is told.
        ended: called without arguments; None: leases have no effect.
        offered: entered with the folders that a client offers, until its lease ends.
    """

    def __init__(
        self,
        listener: socket.socket,
        hello: Mapping[str, Any],
        ended: Callable[[], None] | None,
        offered: Offered,
    ) -> None:
        self._offered = offered
        self._listener = listener
        self._line = json.dumps(dict(hello)).encode() + b"\n"
        self._ended = ended
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._first: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Start to hand out leases: the engine is ready now."""
        self._server = await asyncio.start_unix_server(self._hold, sock=self._listener)
        if self._ended:
            self._first = asyncio.get_running_loop().call_later(FIRST_LEASE, self._check)

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            writer.write(self._line)
            with ExitStack() as offer:
                while line := await reader.readline():
                    offer.close()
                    folders = msgspec.json.decode(line, type=Offer).folders()
                    offer.enter_context(self._offered(folders))
                    writer.write(b"{}\n")
        except (OSError, ValueError, msgspec.MsgspecError):  # ValueError: a line without an end
            pass
        finally:
            self._open.discard(writer)
            writer.close()
            asyncio.get_running_loop().call_later(LINGER, self._check)

    def _check(self) -> None:
        if self._ended and not self._open:
            ended, self._ended = self._ended, None
            if self._server:
                self._server.close()
            ended()

    async def close(self) -> None:
        """Hand out no more leases and end those that are open."""
        self._ended = None
        if self._first:
            self._first.cancel()
        if self._server:
            self._server.close()
        for writer in list(self._open):
            with suppress(OSError):
                writer.close()
