"""Watches direct connections of sandboxes: one line of the network log for each, when it ends.

The packet filter tells of connections that begin and of packets that are refused, at a bounded rate;
connection tracking tells what each had when it ended. Both are lossy under load, by design: the
kernel drops what is not read in time, and at most `BATCH` messages are read in `PAUSE`. Where the
kernel does not count, a connection is told when it begins.
"""

import asyncio
import errno
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import structlog

from atoll.network import flows
from atoll.network.flows import Flow
from atoll.network.gateway.protocol import Decision

BATCH, PAUSE = 256, 0.05
"""Messages that are read at once, and seconds until the next are: about 5,000 a second."""

MAX_OPEN = 16_384
"""Connections that are remembered until they end; the oldest are told before."""

RULES = {
    "out": ("allowed", "enable_internet"),
    "off": ("refused", "enable_internet"),
    "closed": ("refused", "private address"),
    "host": ("refused", "address of this host or of a sandbox"),
    "gated": ("refused", "the gateway lets TCP and DNS out only"),
}
"""Prefix of a rule → verdict and reason."""

_ACCOUNTING = Path("/proc/sys/net/netfilter/nf_conntrack_acct")
_NETFILTER = 12
_LOG_CONFIG = 4 << 8 | 1
_LOG_PACKET = 4 << 8
_CONNTRACK_DELETE = 1 << 8 | 2
_DESTROYED_GROUP = 3
_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1
_BIND, _COPY_PACKET, _HEADER = 1, 2, 96

_log = structlog.get_logger(__name__)

Tell = Callable[[str, Decision], None]


class Watching:
    """What the kernel tells of direct connections.

    Args:
        group: of the netlink log, as the packet filter has it.
        tell: takes the source address of a connection and what is to be told of it.
    """

    def __init__(self, group: int, tell: Tell) -> None:
        self._group = group
        self._tell = tell
        self._sockets: list[socket.socket] = []
        self._open: OrderedDict[Flow, float] = OrderedDict()
        self._counts = False

    def open(self) -> bool:
        """Begin to watch; tell whether the packet filter may log. Nothing else depends on it."""
        try:
            self._sockets.append(_log_socket(self._group))
        except OSError as error:
            _log.warning("direct connections are not logged", error=str(error))
            return False
        with suppress(OSError):
            if _ACCOUNTING.read_text().strip() == "0":
                _ACCOUNTING.write_text("1")
            self._sockets.append(_conntrack_socket())
            self._counts = True
        for made in self._sockets:
            self._read_on(made)
        return True

    def close(self) -> None:
        """Watch no longer; tell what is open."""
        for made in self._sockets:
            asyncio.get_running_loop().remove_reader(made)
            made.close()
        self._sockets.clear()
        while self._open:
            self._end(next(iter(self._open)))

    def _read_on(self, made: socket.socket) -> None:
        if made.fileno() >= 0:
            asyncio.get_running_loop().add_reader(made, self._read, made)

    def _read(self, made: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(BATCH):
            try:
                data = made.recv(65_536)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # some were dropped, as intended
                    loop.remove_reader(made)
                    return
                continue
            for kind, message in _messages(data):
                self._hear(kind, message)
        loop.remove_reader(made)
        loop.call_later(PAUSE, self._read_on, made)

    def _hear(self, kind: int, message: bytes) -> None:
        if kind == _LOG_PACKET and (begun := flows.begun(message)):
            verdict = RULES.get(begun.kind)
            if begun.kind == "out" and self._counts and begun.flow.protocol in flows.WITH_PORTS:
                self._open[begun.flow] = time.time()
                while len(self._open) > MAX_OPEN:
                    self._end(next(iter(self._open)))
            elif verdict:
                self._tell(begun.flow.source, _decision(begun.flow, *verdict, time.time()))
        elif kind == _CONNTRACK_DELETE and (ended := flows.ended(message)):
            self._end(ended.flow, ended.bytes_up, ended.bytes_down)

    def _end(self, flow: Flow, bytes_up: int = 0, bytes_down: int = 0) -> None:
        if (began := self._open.pop(flow, None)) is not None:
            told = _decision(flow, *RULES["out"], began, bytes_up, bytes_down)
            self._tell(flow.source, told)


def _decision(
    flow: Flow, verdict: str, rule: str, began: float, bytes_up: int = 0, bytes_down: int = 0
) -> Decision:
    return Decision(
        time=began,
        protocol=flow.protocol,
        verdict=verdict,
        rule=rule,
        address=flow.address,
        port=flow.port,
        bytes_up=bytes_up,
        bytes_down=bytes_down,
        ms=round((time.time() - began) * 1_000, 1),
    )


def _log_socket(group: int) -> socket.socket:
    """Return a socket that hears the first bytes of each packet of the log's *group*."""
    made = _netlink()
    try:
        for kind, value in (
            (1, struct.pack("=B", _BIND)),
            (2, struct.pack("!IBB", _HEADER, _COPY_PACKET, 0)),
            (5, struct.pack("!I", 1)),  # each at once: its end must not come before it
        ):
            made.send(_config(group, kind, value))
            code = -struct.unpack_from("=i", made.recv(4_096), 16)[0]
            if code:
                raise OSError(code, "the netlink log cannot be used")
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def _conntrack_socket() -> socket.socket:
    made = _netlink()
    made.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, _DESTROYED_GROUP)
    made.setblocking(False)
    return made


def _netlink() -> socket.socket:
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER)
    made.bind((0, 0))
    return made


def _config(group: int, kind: int, value: bytes) -> bytes:
    length = 4 + len(value)
    attribute = struct.pack("=HH", length, kind) + value + bytes(-length % 4)
    body = struct.pack("!BBH", 0, 0, group) + attribute
    return struct.pack("=IHHII", 16 + len(body), _LOG_CONFIG, 0x1 | 0x4, 1, 0) + body


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and attributes of each message in what one read gave."""
    at = 0
    while at + 20 <= len(data):
        length, kind = struct.unpack_from("=IH", data, at)
        if length < 20 or at + length > len(data):
            return
        yield kind, data[at + 20 : at + length]
        at += (length + 3) & ~3
