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
