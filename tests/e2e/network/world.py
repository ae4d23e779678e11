"""A small world of namespaces: a host with slots, and an internet behind it.

The test's own thread lives in the "host" namespace, so nothing here touches the real network.
The internet answers on every address in `ADDRESSES`; each answer names the address it saw.
"""

import os
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from atoll.host import linux
from atoll.network import netns

UPLINK = "198.51.100.1"
PUBLIC = "203.0.113.80"
RESOLVER = "10.9.9.53"
METADATA = "169.254.169.254"
PRIVATE = ("10.9.9.9", "172.16.5.5", "192.168.7.7", "100.100.100.200", METADATA)
ADDRESSES = (PUBLIC, RESOLVER, *PRIVATE)
PORTS = (53, 80, 853)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@contextmanager
def world(folder: Path) -> Iterator[Path]:
    """Enter a new "host" namespace; give the path of the internet's."""
    with ExitStack() as stack:
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, home)
        linux.unshare(linux.CLONE_NEWNET)
        stack.callback(linux.setns, home, linux.CLONE_NEWNET)
        internet = folder / "internet"
        stack.callback(netns.forget, internet)
        netns.call_in_new(lambda: netns.keep(internet))
        _wire(internet)
        _serve_everything(internet, stack)
        yield internet


def _wire(internet: Path) -> None:
    ip("link", "set", "lo", "up")
    ip("link", "add", "up0", "type", "veth", "peer", "name", "down0")
    fd = os.open(internet, os.O_RDONLY)
    ip("link", "set", "down0", "netns", f"/proc/{os.getpid()}/fd/{fd}")
    os.close(fd)
    ip("addr", "add", f"{UPLINK}/24", "dev", "up0")
    ip("link", "set", "up0", "up")
    ip("route", "add", "default", "via", "198.51.100.2")
    inside = ("nsenter", f"--net={internet}", "ip")
    for command in (
        "link set lo up",
        "link set down0 up",
        "addr add 198.51.100.2/24 dev down0",
        *(f"addr add {address}/32 dev lo" for address in ADDRESSES),
    ):
        subprocess.run([*inside, *command.split()], check=True)


def _serve_everything(internet: Path, stack: ExitStack) -> None:
    for port in PORTS:
        stack.enter_context(serve(internet, port))
        for address in ADDRESSES:
            stack.enter_context(serve_udp(internet, port, address))


@contextmanager
def serve(namespace: Path | None, port: int, address: str = "0.0.0.0") -> Iterator[None]:
    """Answer each TCP connection with the address it came from."""
    listener = _made(namespace, lambda: socket.create_server((address, port)))

    def loop() -> None:
        while True:
            try:
                connection, peer = listener.accept()
            except OSError:
                return
            with closing(connection):
                connection.sendall(peer[0].encode())

    yield from _running(listener, loop)


@contextmanager
def serve_udp(namespace: Path | None, port: int, address: str) -> Iterator[None]:
    """Answer each datagram with the address it came from, from the address it went to."""
    bound = _made(namespace, lambda: _udp(address, port))

    def loop() -> None:
        while True:
            try:
                data, peer = bound.recvfrom(1_000)
                if not data:
                    return
                bound.sendto(peer[0].encode(), peer)
            except OSError:
                return

    yield from _running(bound, loop)


def _running(listener: socket.socket, loop: object) -> Iterator[None]:
    assert callable(loop)
    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR) if listener.type == socket.SOCK_STREAM else _poke(
            listener
        )
        thread.join(5)
        listener.close()


def _poke(bound: socket.socket) -> None:
    """Wake a receiver: shutdown of a datagram socket does, although it reports an error."""
    try:
        bound.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def _udp(address: str, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.bind((address, port))
    return bound


def _made(namespace: Path | None, make: object) -> socket.socket:
    assert callable(make)
    made = netns.call_in(namespace, make) if namespace else make()
    assert isinstance(made, socket.socket)
    return made


def ask(namespace: Path | None, address: str, port: int = 80) -> str | None:
    """Return what a TCP server says to somebody inside *namespace*, None when out of reach."""

    def call() -> str | None:
        try:
            with socket.create_connection((address, port), timeout=0.7) as connection:
                return connection.recv(100).decode()
        except OSError:
            return None

    return netns.call_in(namespace, call) if namespace else call()


def ask_udp(namespace: Path | None, address: str, port: int = 53) -> str | None:
    """Return what a UDP server says to somebody inside *namespace*, None when out of reach."""

    def call() -> str | None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.settimeout(0.5)
            try:
                asking.connect((address, port))
                asking.send(b"?")
                return asking.recv(100).decode()
            except OSError:
                return None

    return netns.call_in(namespace, call) if namespace else call()


def send_spoofed(namespace: Path, source: str, target: str, port: int, payload: bytes) -> None:
    """Send a UDP datagram with a source address of choice, as root with raw sockets could."""

    def call() -> None:
        udp = struct.pack("!4H", 4_444, port, 8 + len(payload), 0) + payload
        header = struct.pack(
            "!2B3H2BH4s4s", 0x45, 0, 20 + len(udp), 1, 0, 64, socket.IPPROTO_UDP, 0,
            socket.inet_aton(source), socket.inet_aton(target),
        )  # fmt: skip
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
            raw.sendto(header + udp, (target, 0))

    netns.call_in(namespace, call)
