"""The process as a whole; what it makes is tried in test_networks."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import atoll
from atoll.host import unix
from atoll.network.rootless.networks import UserNetworks

PACKAGE = Path(atoll.__file__).parent.parent


def ask(path: Path, data: bytes) -> bytes:
    with unix.connect(path) as connection:
        connection.settimeout(10)
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return connection.recv(1 << 16)


async def test_nonsense_is_answered_or_dropped_and_the_next_question_served(
    made: UserNetworks, tmp_path: Path
) -> None:
    control = tmp_path / "n" / "holder.sock"
    assert ask(control, b"\xff not json") == b""
    assert "error" in json.loads(ask(control, b'{"op": "listeners", "fd": 99999}'))
    assert "error" in json.loads(ask(control, b'{"op": "no such"}'))
    assert "held" in json.loads(ask(control, b'{"op": "list"}'))
    assert await made.acquire("a")


def test_one_that_nobody_asks_ends(tmp_path: Path) -> None:
    """Its engine was killed before it wrote down that it has one."""
    code = (
        "import sys, os; sys.path.insert(0, sys.argv[1]); os.dup2(int(sys.argv[2]), 3);"
        "from atoll.network.rootless import holder; holder.UNUSED_TIMEOUT = 0.1; holder.main()"
    )
    with unix.listen(tmp_path / "holder.sock") as listener:
        number = str(listener.fileno())
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code, PACKAGE, number],
            pass_fds=[listener.fileno()],
            capture_output=True,
            text=True,
            timeout=30,
        )
    assert (done.returncode, done.stderr.strip()) == (1, "nobody asked for anything")
