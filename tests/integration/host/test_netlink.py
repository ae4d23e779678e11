import os
import socket
import struct
from contextlib import closing

from atoll.host import netlink


def test_what_nobody_reads_is_seen() -> None:
    before = netlink.queued(os.getpid())
    nothing = struct.pack("=IHHII", 16, 99, 0x5, 1, 0)  # an unknown request, to be acknowledged
    with closing(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)) as asking:
        for _ in range(20):
            asking.send(nothing)
        assert netlink.queued(os.getpid()) >= before + 20 * len(nothing)


def test_of_a_process_that_is_gone_it_is_nothing() -> None:
    assert netlink.queued(2**31 - 1) == 0
