"""Connections that the kernel tracks for a sandbox, by netlink. Blocking, some 0.1 ms.

The kernel compares the source address itself: its whole table of connections never gets here.
Numbers are those of linux/netfilter/nfnetlink_conntrack.h.
"""

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable

import structlog

_NETFILTER = 12
_DELETE = 1 << 8 | 2  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE
_REQUEST_ACK = 0x1 | 0x4
_TUPLE_ORIG, _FILTER = 1, 25
_TUPLE_IP, _SOURCE4, _SOURCE6 = 1, 1, 3
_FILTER_ORIG_FLAGS, _BY_SOURCE = 1, 1
_NESTED = 0x8000

_log = structlog.get_logger(__name__)


def forget(addresses: Iterable[str]) -> None:
    """Forget all connections that began at *addresses*; their next packet begins a new one.

    Kernels before 6.10 cannot compare addresses here. Then they time out by themselves: a slot's
    addresses are not used again soon, and its mode holds for packets of known connections too.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER) as netlink:
        netlink.bind((0, 0))
        for address in addresses:
            netlink.send(_message(ipaddress.ip_address(address)))
            code = -struct.unpack_from("=i", netlink.recv(4_096), 16)[0]
            if code not in {0, errno.ENOENT, errno.EOPNOTSUPP}:
                _log.warning("tracked connections stay", address=address, error=os.strerror(code))


def _message(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bytes:
    four = address.version == 4
    source = _attribute(_SOURCE4 if four else _SOURCE6, address.packed)
    flags = _attribute(_FILTER_ORIG_FLAGS, struct.pack("=I", _BY_SOURCE))
    family = socket.AF_INET if four else socket.AF_INET6
    body = (
        struct.pack("=BBH", family, 0, 0)
        + _attribute(_TUPLE_ORIG | _NESTED, _attribute(_TUPLE_IP | _NESTED, source))
        + _attribute(_FILTER | _NESTED, flags)
    )
    return struct.pack("=IHHII", 16 + len(body), _DELETE, _REQUEST_ACK, 1, 0) + body


def _attribute(kind: int, data: bytes) -> bytes:
    length = 4 + len(data)
    return struct.pack("=HH", length, kind) + data + bytes(-length % 4)
