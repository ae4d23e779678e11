"""The way to the engine: HTTP over a unix socket or TCP, errors mapped once, retries.

A mutating request is sent again only when the engine cannot have accepted it. Figures: a whole
request over a unix socket costs 0.3 to 0.4 ms of client and server time together, so the client
library is used as it is, with its own pool but without its limits on connections.
"""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from atoll.errors import (
    ContainerNotReadyError,
    EngineUnreachableError,
    InvalidConfigError,
    NotSupportedByRuntimeError,
    RateLimitedError,
    RouteNotFoundError,
    SandboxError,
)
from atoll.sdk import _io, _shared
from atoll.wire import ops
from atoll.wire.base import Empty, Request, Result

if TYPE_CHECKING:
    import httpx2

ResultT = TypeVar("ResultT", bound=Result)
Body = bytes | _io.Chunks

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 600.0
"""How long one answer may take: a start may build an image, a write may sync gigabytes."""

SILENCE_SECONDS = 60.0
"""Silence after which a stream counts as lost: four heartbeats (semantics.md "Commands" 7)."""

_IDLE_SECONDS = 30.0
"""Age at which an idle connection is closed: below the 75 s after which the engine does, so
that a request never meets a connection that is just being closed."""


_READ_BYTES = 1 << 18
"""Bytes read from a connection at once. With the library's own 64 KiB large files come at half the
rate (measured: 0.8 against 1.6 GB/s), and it has no other way to say so than its class."""

_SEND_BYTES = 1 << 19
"""Send buffer of a connection, as far as the kernel allows (twice its default of 208 KiB): whole
pieces of a file go at once, for half of the client's time."""


_NOTHING_RAN = (ContainerNotReadyError, RateLimitedError)
"""Refusals after which the same request is sent again, in the time the caller gives for a start."""

_GATEWAY = frozenset({502, 503, 504})
"""Statuses with which a proxy says that it got no answer."""


class ConnectionLostError(Exception):
    """A request was sent and its answer did not arrive, or not all of it."""


class Transport:
    """Sends requests to one engine. Safe to use from several event loops, each with its own thread."""

    def __init__(self, endpoint: _shared.Endpoint) -> None:
        self.endpoint = endpoint
        self._clients: dict[object, httpx2.Client] = {}
        self._connecting = threading.Lock()
        self.closed = False
        self._reached = False

    def check_open(self) -> None:
        """Raise `EngineUnreachableError` once this was closed."""
        if self.closed:
            raise EngineUnreachableError(
                f"the environment of {self.endpoint.shown} is closed",
                context={"url": self.endpoint.shown},
                suggestion="use its sandboxes inside its `with` block, or make another environment",
            )

    def open(self) -> None:
        """Make the engine available, before each try; `local` starts it.

        Raises:
            EngineUnreachableError: this was closed.
        """
        self.check_open()

    def offer(self, folders: Mapping[str, Path]) -> None:
        """Have the engine know local buckets; only a private one is told.

        Raises:
            NotSupportedByRuntimeError: this engine is not private.
        """
        raise NotSupportedByRuntimeError(
            "only a private engine mounts folders of its caller's host",
            context={"url": self.endpoint.shown, "buckets": sorted(folders)},
            suggestion="use `atoll.local()`, or the engine's setting storage.local_buckets",
        )

    def call(
        self,
        op: ops.Op[Any, ResultT],
        params: Mapping[str, str],
        request: Request,
        *,
        content: Body | None = None,
        key: str | None = None,
        ready: float = _shared.READY_SECONDS,
        patience: float | None = None,
        timeout: float | None = ANSWER_SECONDS,
    ) -> ResultT:
        """Make a unary call (or an upload of *content*) and return its result.

        *params* are the placeholders of the operation's path, *key* is the idempotency key of a
        call that may be sent again; for the rest see `send`.

        Raises:
            SandboxError: any error of the engine.
            EngineUnreachableError: nobody answers.
            OperationInterruptedError: the connection was lost; the outcome is not known.
        """
        call = _shared.build_call(op, params, request, key=key)
        again = _shared.Backoff(_io.now() + _shared.RECONNECT_SECONDS, _io.jitter)
        while True:
            try:
                with self.send(
                    call, content=content, ready=ready, patience=patience, timeout=timeout
                ) as answer:
                    return _shared.read_answer(op, _read(answer))
            except ConnectionLostError as error:
                # To ask again what changes nothing does no harm, whatever became of the first.
                delay = None if op.mutates else again.wait(_io.now())
                if delay is None:
                    raise _shared.lost(op.name, str(error)) from error
            except RouteNotFoundError:
                self.check_version()
                raise
            _io.sleep(delay)

    def check_version(self) -> None:
        """Ask the engine for its version: called only when an answer looks strange."""
        call = _shared.build_call(ops.VERSION, {}, Empty())
        with self.send(call) as answer:
            _shared.check_version(_shared.read_answer(ops.VERSION, _read(answer)))

    @contextmanager
    def send(
        self,
        call: _shared.Call,
        *,
        content: Body | None = None,
        ready: float = _shared.READY_SECONDS,
        patience: float | None = None,
        timeout: float | None = ANSWER_SECONDS,
    ) -> Iterator["httpx2.Response"]:
        """Yield the answer to *call*, when it is a success, with its body not read yet.

        Args:
            call: the request.
            content: its body when that is not part of *call*.
            ready: seconds during which `CONTAINER_NOT_READY` and `RATE_LIMITED` are tried again.
            patience: seconds to wait for an engine that cannot be reached; None:
                `RECONNECT_SECONDS` for one that was reached before, else no waiting.
            timeout: seconds the engine may be silent; None: any time.

        Raises:
            ConnectionLostError: the request was sent and the answer is not complete.
        """
        import httpx2

        answer = self._answer(call, content, ready, patience, timeout)
        try:
            yield answer
        except httpx2.TransportError as error:
            raise ConnectionLostError(_reason(error)) from error
        finally:
            answer.close()

    def _answer(
        self,
        call: _shared.Call,
        content: Body | None,
        ready: float,
        patience: float | None,
        timeout: float | None,
    ) -> "httpx2.Response":
        import httpx2

        start = _io.now()
        wait = _shared.RECONNECT_SECONDS if patience is None else patience
        away = _shared.Backoff(start + wait, _io.jitter)
        starting = _shared.Backoff(start + ready, _io.jitter)
        while True:
            self.open()
            client = self._connected()
            body = call.body if content is None else content
            request = client.build_request(
                call.method,
                self.endpoint.url + call.path,
                headers=call.headers,
                content=body,
                timeout=httpx2.Timeout(timeout, connect=CONNECT_SECONDS, pool=None),
            )
            try:
                answer = client.send(request, stream=True)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure: SandboxError = _shared.unreachable(self.endpoint, _reason(error))
                known = self._reached or patience is not None
                delay = away.wait(_io.now()) if known else None
            except httpx2.TransportError as error:
                raise ConnectionLostError(_reason(error)) from error
            else:
                self._reached = True
                if answer.status_code < 400:
                    return answer
                failure = _failure(answer)
                delay = starting.wait(_io.now(), failure.retry_after)
                if not isinstance(failure, _NOTHING_RAN) or _used_up(content):
                    raise failure
            if delay is None:
                raise failure
            _io.sleep(delay)

    def _connected(self) -> "httpx2.Client":
        """Return the client of this event loop, or of this process after a fork."""
        scope = _io.scope()
        with self._connecting:
            if scope not in self._clients:
                lasting = {old: self._clients[old] for old in self._clients if _io.lasts(old)}
                self._clients = lasting | {scope: _new_client(self.endpoint)}
            return self._clients[scope]

    def close(self) -> None:
        """Close all connections; nothing is sent any more."""
        self.closed = True
        clients, self._clients = self._clients, {}
        if client := clients.get(_io.scope()):
            client.close()


def _new_client(endpoint: _shared.Endpoint) -> "httpx2.Client":
    import httpcore2
    import httpx2

    httpcore2.HTTP11Connection.READ_NUM_BYTES = _READ_BYTES
    limits = httpx2.Limits(
        max_connections=None, max_keepalive_connections=32, keepalive_expiry=_IDLE_SECONDS
    )
    headers = {
        "user-agent": "atoll",
        "accept-encoding": "identity",
        ops.API_HEADER: str(ops.API_VERSION),
    }
    if endpoint.api_key:
        headers["authorization"] = f"Bearer {endpoint.api_key}"
    if endpoint.remote:
        try:
            return httpx2.Client(headers=headers, limits=limits)
        except (ImportError, ValueError, httpx2.InvalidURL) as error:
            raise InvalidConfigError(
                f"the proxy that the environment names cannot be used: {error}",
                suggestion="see HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY",
            ) from error
    secure = endpoint.url.startswith("https:")
    options = [(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)]
    transport = httpx2.HTTPTransport(
        # Certificates take 20 ms to read, and are needed for TLS only.
        verify=secure,
        trust_env=secure,
        uds=endpoint.socket,
        limits=limits,
        socket_options=options,
    )
    return httpx2.Client(headers=headers, transport=transport, trust_env=False)


def _failure(answer: "httpx2.Response") -> SandboxError:
    import httpx2

    try:
        body = _read(answer)
    except httpx2.TransportError as error:
        raise ConnectionLostError(_reason(error)) from error
    finally:
        answer.close()
    if answer.status_code in _GATEWAY and not _shared.is_envelope(body):
        raise ConnectionLostError(f"a proxy on the way answered HTTP {answer.status_code}")
    return _shared.read_error(answer.status_code, answer.headers, body)


def chunks_of(answer: "httpx2.Response") -> _io.Stream[bytes]:
    """Return the body of an answer as it comes off the connection."""
    chunks: Any = answer.iter_raw()  # a generator in both forms, though only one says so
    stream: _io.Stream[bytes] = chunks
    return stream


def _read(answer: "httpx2.Response") -> bytes:
    return b"".join(list(answer.iter_raw()))


def _used_up(content: Body | None) -> bool:
    return content is not None and not isinstance(content, bytes)


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
