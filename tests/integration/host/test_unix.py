import os
import socket
import stat
from pathlib import Path

import pytest

from atoll.host import unix


@pytest.mark.parametrize("depth", [0, 30])
def test_paths_of_any_length_work(tmp_path: Path, depth: int) -> None:
    folder = tmp_path.joinpath(*["deeper"] * depth)
    folder.mkdir(parents=True, exist_ok=True)
    with unix.listen(folder / "a.sock") as listener, unix.connect(folder / "a.sock") as caller:
        peer, _ = listener.accept()
        with peer:
            peer.send(b"x")
        caller.setblocking(True)
        assert caller.recv(1) == b"x"


def test_nobody_else_may_connect(tmp_path: Path) -> None:
    with unix.listen(tmp_path / "a.sock"):
        assert stat.S_IMODE((tmp_path / "a.sock").stat().st_mode) == 0o600


def test_a_missing_listener_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        unix.connect(tmp_path / "a.sock")
    with pytest.raises(FileNotFoundError):
        unix.listen(tmp_path / "none" / "a.sock")
    unix.listen(tmp_path / "a.sock").close()
    with pytest.raises(ConnectionRefusedError):
        unix.connect(tmp_path / "a.sock")
    with pytest.raises(OSError, match="in use"):
        unix.listen(tmp_path / "a.sock")


def test_a_connection_takes_a_piece_of_a_file_at_once(tmp_path: Path) -> None:
    with unix.listen(tmp_path / "a.sock"), unix.connect(tmp_path / "a.sock") as caller:
        allowed = int(Path("/proc/sys/net/core/wmem_max").read_text())
        wanted = unix.SEND_BUFFER if os.geteuid() == 0 else min(unix.SEND_BUFFER, allowed)
        assert caller.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * wanted


def test_a_user_who_may_not_exceed_the_limit_gets_what_it_allows() -> None:
    asked = []

    class Refused(socket.socket):
        def setsockopt(self, *options: int) -> None:  # type: ignore[override]
            asked.append(options[1])
            if options[1] != socket.SO_SNDBUF:
                raise PermissionError

    with Refused(socket.AF_UNIX) as connection:
        unix.enlarge_buffer(connection)
    assert asked[-1] == socket.SO_SNDBUF
