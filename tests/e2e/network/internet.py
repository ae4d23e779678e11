"""An internet in a namespace: names, web servers with an authority of their own, and what lurks.

It answers for every address of `ADDRESSES`, over IPv4 and IPv6, and writes down what it saw, so that
a test can tell what never arrived. `PRIVATE` addresses and the metadata service are reachable from
the host: what keeps a sandbox from them is the product alone.
"""

import json
import os
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import BaseServer, StreamRequestHandler, ThreadingMixIn
from typing import Any, NamedTuple

from atoll.host import linux
from atoll.network import netns
from e2e.network.authority import Authority
from e2e.network.names import NameServer

UPLINK, UPLINK6 = "198.51.100.1", "2001:db8:100::1"
"""Addresses of the host, towards the internet."""
FAR, FAR6 = "198.51.100.2", "2001:db8:100::2"
RESOLVER = "203.0.113.53"
"""Resolver of the host. It is on the internet, and so is what it is asked."""
PUBLIC, OTHER, SHARED = "203.0.113.80", "203.0.113.81", "203.0.113.90"
"""`SHARED`: a content network, where several names have the same address."""
PUBLIC6 = "2001:db8:80::1"
PUBLIC_RESOLVERS = ("8.8.8.8", "1.1.1.1")
METADATA, METADATA6 = "169.254.169.254", "fd00:ec2::254"
PRIVATE = ("10.9.9.9", "172.16.5.5", "192.168.7.7", "100.100.100.200", METADATA)
PRIVATE6 = (METADATA6, "fc00:9::9")
ADDRESSES = (RESOLVER, PUBLIC, OTHER, SHARED, *PUBLIC_RESOLVERS, *PRIVATE)
ADDRESSES6 = (PUBLIC6, *PRIVATE6)

NAMES = {
    "allowed.test": [PUBLIC],
    "six.test": [PUBLIC6],
    "both.test": [PUBLIC, PUBLIC6],
    "denied.test": [OTHER],
    "other.test": [OTHER],
    "*.many.test": [PUBLIC],
    "one.shared.test": [SHARED],
    "two.shared.test": [SHARED],
    "rebound.test": [METADATA],
    "private.test": ["10.9.9.9"],
    "metadata.google.internal": [METADATA],
    "mixed.test": [METADATA, PUBLIC],
    "loopback.test": ["127.0.0.1"],
    "mapped.test": ["::ffff:169.254.169.254"],
    "host.test": [UPLINK],
    "xn--bcher-kva.test": [PUBLIC],
}
"""What the resolver knows. A name with a star answers for all below it, and remembers each."""

HTTP, HTTPS, ECHO, BANNER, DNS, DOT = 80, 443, 7, 22, 53, 853


class Seen(NamedTuple):
    """A request that arrived. `sni` is None without TLS."""

    method: str
    host: str
    path: str
    headers: dict[str, str]
    body: bytes
    peer: str
    local: str
    sni: str | None


Site = Callable[[Seen], tuple[int, Mapping[str, str], bytes]]


class Internet:
    """What a test knows of it.

    Attributes:
        namespace: where its servers are.
        authority: whose certificates they have.
        requests: HTTP requests that arrived.
        connections: (port, peer, own address) of every TCP connection that arrived.
        names: the resolver's; `questions` are what it was asked.
        sites: what answers for a host instead: with status, header fields, body.
    """

    def __init__(self, namespace: Path, folder: Path) -> None:
        self.namespace = namespace
        self.authority = Authority(folder / "internet-ca.pem")
        self.requests: list[Seen] = []
        self.connections: list[tuple[int, str, str]] = []
        self.names = NameServer(NAMES)
        self.sites: dict[str, Site] = {}

    def context(self) -> ssl.SSLContext:
        """Return a server's context that has a certificate for whatever name is asked for."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])

        def choose(sock: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            sock.context = self.authority.context(name or PUBLIC)
            sock.sni = name  # type: ignore[attr-defined]

        context.sni_callback = choose
        context.load_cert_chain(self.authority.chain(PUBLIC))
        return context


@contextmanager
def internet(folder: Path) -> Iterator[Internet]:
    """Enter a new "host" namespace with a way out to a new internet.

    The thread that calls it is inside until the end, and so are processes and threads it starts.
    """
    with ExitStack() as stack:
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, home)
        linux.unshare(linux.CLONE_NEWNET)
        stack.callback(linux.setns, home, linux.CLONE_NEWNET)
        namespace = folder / "internet"
        stack.callback(netns.forget, namespace)
        netns.call_in_new(lambda: netns.keep(namespace))
        _wire(namespace)
        made = Internet(namespace, folder)
        _serve(made, stack)
        yield made


def _wire(namespace: Path) -> None:
    """Lay the cable and give the addresses, each side in one batch of `ip`."""
    inside = os.open(namespace, os.O_RDONLY)
    sysctl = Path("/proc/sys/net/ipv6/conf/default/accept_dad")
    sysctl.write_text("0")  # an address is usable at once
    netns.call_in(namespace, lambda: sysctl.write_text("0"))
    _ip(
        "link set lo up",
        "link add up0 type veth peer name down0",
        f"link set down0 netns /proc/{os.getpid()}/fd/{inside}",
        f"addr add {UPLINK}/24 dev up0",
        f"addr add {UPLINK6}/64 dev up0",
        "link set up0 up",
        f"route add default via {FAR}",
        f"-6 route add default via {FAR6}",
    )
    commands = (
        "link set lo up",
        f"addr add {FAR}/24 dev down0",
        f"addr add {FAR6}/64 dev down0",
        "link set down0 up",
        *(f"addr add {address}/32 dev lo" for address in ADDRESSES),
        *(f"addr add {address}/128 dev lo" for address in ADDRESSES6),
    )
    netns.call_in(namespace, lambda: _ip(*commands))
    os.close(inside)


def _ip(*commands: str) -> None:
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)


def _serve(made: Internet, stack: ExitStack) -> None:
    stack.enter_context(made.names.serving(made.namespace, (RESOLVER, *PUBLIC_RESOLVERS)))
    for port, handler in ((ECHO, _Echo), (BANNER, _Banner), (HTTP, _Web), (HTTPS, _Web)):
        stack.enter_context(_listening(made, port, handler))


class _Server(ThreadingMixIn, BaseServer):
    """Serves connections of a listening socket that was made in another namespace."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, handler: Any, made: Internet, port: int) -> None:
        super().__init__(listener.getsockname(), handler)
        self.socket, self.made, self.port = listener, made, port
        self.context = made.context() if port == HTTPS else None

    def fileno(self) -> int:
        return self.socket.fileno()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, peer = self.socket.accept()
        self.made.connections.append(
            (self.port, _plain(peer[0]), _plain(connection.getsockname()[0]))
        )
        return connection, peer

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Do the handshake in the connection's own thread."""
        with suppress(OSError):
            request.settimeout(20)
            if not self.context:
                super().finish_request(request, client_address)
                return
            with self.context.wrap_socket(request, server_side=True) as tls:
                super().finish_request(tls, client_address)
                tls.unwrap()

    def shutdown_request(self, request: Any) -> None:
        with suppress(OSError):
            request.shutdown(socket.SHUT_WR)
        request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that was cut is what many tests are about."""


class _Web(BaseHTTPRequestHandler):
    """Answers with what it saw, in JSON; ``/bytes/<n>`` with n zeros."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def answer(self) -> None:
        body = self._body()
        seen = Seen(
            method=self.command,
            host=self.headers.get("host", ""),
            path=self.path,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
            peer=_plain(self.client_address[0]),
            local=_plain(self.connection.getsockname()[0]),
            sni=getattr(self.connection, "sni", None),
        )
        self.server.made.requests.append(seen)
        status, fields, content = self._site(seen)
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _site(self, seen: Seen) -> tuple[int, Mapping[str, str], bytes]:
        if site := self.server.made.sites.get(seen.host):
            return site(seen)
        if self.path.startswith("/bytes/"):
            content = bytes(int(self.path.removeprefix("/bytes/")))
        else:
            told = seen._asdict() | {"body": seen.body.decode("latin-1")}
            content = json.dumps(told).encode()
        return 200, {"content-type": "application/json"}, content

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = do_CONNECT = answer  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """What was seen is in `Internet.requests`."""


class _Echo(StreamRequestHandler):
    """Gives back what it gets."""

    def handle(self) -> None:
        while data := self.request.recv(65_536):
            self.request.sendall(data)


class _Banner(StreamRequestHandler):
    """Speaks first, as SSH and SMTP do, then gives back one line."""

    def handle(self) -> None:
        self.wfile.write(b"220 ready\r\n")
        self.wfile.write(self.rfile.readline(1_000))


@contextmanager
def _listening(made: Internet, port: int, handler: Any) -> Iterator[None]:
    listener = netns.call_in(made.namespace, lambda: _listener(port))
    server = _Server(listener, handler, made, port)
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.05))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join(10)
        listener.close()


def _listener(port: int) -> socket.socket:
    return socket.create_server(
        ("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=512
    )


def _plain(address: str) -> str:
    return address.removeprefix("::ffff:")


def inside(namespace: Path, call: Callable[[], Any]) -> Any:
    """Return what *call* returns in a thread inside *namespace*."""
    return netns.call_in(namespace, call)


@contextmanager
def temporary() -> Iterator[Internet]:
    """Enter a host with an internet; what it needs on disk is gone afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="atoll-internet-") as folder,
        internet(Path(folder)) as made,
    ):
        yield made
