"""The host name of another UTS namespace."""

import os
import socket

from atoll.host import linux


def set_hostname(pid: int, hostname: str) -> None:
    """Set the host name that process *pid* sees. Blocking; the calling thread comes back."""
    own = os.open("/proc/thread-self/ns/uts", os.O_RDONLY | os.O_CLOEXEC)
    try:
        other = os.open(f"/proc/{pid}/ns/uts", os.O_RDONLY | os.O_CLOEXEC)
        try:
            linux.setns(other, linux.CLONE_NEWUTS)
        finally:
            os.close(other)
        try:
            socket.sethostname(hostname)
        finally:
            linux.setns(own, linux.CLONE_NEWUTS)
    finally:
        os.close(own)
