"""One listener's HTTP server: the server library with our protocol, our limits and our TLS."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from atoll.host import unix
from atoll.proxy.server import Site
from atoll.server import sockets, tls
from atoll.server.auth import Listener
from atoll.server.front import Front
from atoll.server.upgraded import MAX_MESSAGE, LimitedWebSocket
from atoll.settings import ServerSettings

KEEP_ALIVE = 75
"""Whole seconds an idle connection is kept; clients of ours close theirs before."""


class HttpServer(uvicorn.Server):
    """A server of one listener, without signal handlers of its own: several run in one loop.

    Args:
        app: what answers.
        settings: limits.
        kind: where the listener is.
        site: the previews.
        context: TLS, where it is spoken.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        kind: Listener,
        site: Site,
        context: ssl.SSLContext | None = None,
    ) -> None:
        local = kind is Listener.UNIX
        stall = None if local else settings.stall_timeout
        protocol = type("Protocol", (Front,), {"waiting": {}, "stall": stall, "site": site})
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=protocol,
            ws=type("WebSocket", (LimitedWebSocket,), {"stall": stall}),
            ws_max_size=MAX_MESSAGE,
            ws_per_message_deflate=False,  # a small message could become a large one
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE,
            backlog=unix.BACKLOG if local else sockets.TCP_BACKLOG,
            limit_concurrency=None if local else sockets.tcp_connections() + 1,
            timeout_graceful_shutdown=round(settings.drain_timeout) + 3,
        )
        super().__init__(config)
        self._context = context

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; a TLS handshake has less time than the library gives it."""
        loop, config = asyncio.get_running_loop(), self.config
        protocol = config.http_protocol_class
        self.servers = [
            await loop.create_server(
                lambda: protocol(config=config, server_state=self.server_state, app_state={}),  # type: ignore[call-arg]
                sock=listener,
                ssl=self._context,
                ssl_handshake_timeout=tls.HANDSHAKE_TIME if self._context else None,
                backlog=config.backlog,
            )
            for listener in sockets or []
        ]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to whoever runs the loop."""
        yield
