import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from atoll.host import uts

pytestmark = pytest.mark.e2e


def test_another_namespace_gets_the_name_and_ours_keeps_its_own() -> None:
    if os.geteuid():
        pytest.skip("needs root")
    ours = socket.gethostname(), os.readlink("/proc/thread-self/ns/uts")
    waits = "import socket, sys; sys.stdin.read(1); print(socket.gethostname())"
    with subprocess.Popen(
        ["unshare", "--uts", sys.executable, "-c", waits],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        while os.readlink(f"/proc/{other.pid}/ns/uts") == ours[1]:
            pass
        uts.set_hostname(other.pid, "renamed")
        told, _ = other.communicate(b"x", timeout=20)
    assert told == b"renamed\n"
    assert (socket.gethostname(), os.readlink("/proc/thread-self/ns/uts")) == ours


def test_a_process_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        uts.set_hostname(1 << 30, "x")
