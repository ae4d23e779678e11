import os
import socket
from pathlib import Path

import pytest

from atoll.errors import (
    InvalidConfigError,
    PermissionDeniedError,
    PortInUseError,
    ResourceBusyError,
)
from atoll.server import sockets


def test_a_state_directory_has_one_engine(tmp_path: Path) -> None:
    held = sockets.lock(tmp_path / "state")
    with pytest.raises(ResourceBusyError, match=str(os.getpid())) as caught:
        sockets.lock(tmp_path / "state")
    assert caught.value.context["pid"] == str(os.getpid())
    os.close(held)
    os.close(sockets.lock(tmp_path / "state"))


def test_a_state_directory_is_closed_to_others(tmp_path: Path) -> None:
    os.close(sockets.lock(tmp_path / "state"))
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_a_state_directory_that_cannot_be_used_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PermissionDeniedError, match="cannot be used"):
        sockets.lock(tmp_path / "file" / "state")


def test_a_stale_socket_is_replaced_and_another_file_is_not(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    sockets.replacing(path).close()
    sockets.replacing(path).close()
    path.unlink()
    path.write_text("mine")
    with pytest.raises(InvalidConfigError):
        sockets.replacing(path)
    assert path.read_text() == "mine"


def test_a_port_that_is_taken_names_who_has_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortInUseError) as caught:
            sockets.tcp("127.0.0.1", port, keys=False)
    assert str(os.getpid()) in caught.value.message
    assert caught.value.context["port"] == port


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.9"])
def test_loopback_needs_no_key(host: str) -> None:
    sockets.tcp(host, 0, keys=False).close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_other_addresses_need_a_key(host: str) -> None:
    with pytest.raises(InvalidConfigError, match="no keys"):
        sockets.tcp(host, 0, keys=False)
    sockets.tcp(host, 0, keys=True).close()


@pytest.mark.parametrize("host", ["203.0.113.1", "no such host", ""])
def test_a_wrong_address_is_a_typed_error(host: str) -> None:
    with pytest.raises(InvalidConfigError):
        sockets.tcp(host, 0, keys=host != "")


@pytest.mark.parametrize("port", [99_999, -1])
def test_what_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(InvalidConfigError, match=str(port)):
        sockets.tcp("127.0.0.1", port, keys=False)


def test_a_free_port_has_no_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    assert sockets.owner_of(port) is None


def test_a_connection_whose_other_end_vanished_is_noticed() -> None:
    """The kernel asks; what it is told of the listener holds for each connection."""
    listener = sockets.tcp("127.0.0.1", 0, keys=False)
    listener.setblocking(True)
    with listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            for name, value in sockets.KEEPALIVE.items():
                assert accepted.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value
