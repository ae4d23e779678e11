import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll.agent.greeting import greet
from atoll.wire import frames
from atoll.wire.agent import PROTOCOL
from atoll.wire.frames import Kind

HELLO = frames.encode_json(Kind.HEADER, {"op": "hello", "version": PROTOCOL})


class Door:
    """A listening socket and one who knocks."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        self.listener.listen()

    def knock(self, data: bytes) -> socket.socket:
        caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        caller.settimeout(10)
        caller.connect(self.path)
        caller.sendall(data)
        return caller

    def config(self, **more: Any) -> bytes:
        fields = {"listen": self.listener.fileno(), "generation": 7, "version": "1", **more}
        return json.dumps(fields).encode()


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    found = Door(tmp_path / "agent.sock")
    yield found
    found.listener.close()


def test_a_hello_that_waits_is_answered_and_hung_up_on(door: Door) -> None:
    with door.knock(HELLO) as caller:
        assert greet(door.config()) is None
        (frame,) = frames.Decoder().feed(caller.recv(1 << 16))
        assert json.loads(frame.payload) == {
            "protocol": PROTOCOL,
            "version": "1",
            "generation": 7,
            "pid": os.getpid(),
        }
        assert caller.recv(1) == b""
    with door.knock(HELLO):  # the listener is as open as before
        assert greet(door.config()) is None


@pytest.mark.parametrize(
    "data",
    [
        frames.encode_json(Kind.HEADER, {"op": "operations"}),
        HELLO[:-3],
        HELLO + HELLO,
        b"",
        frames.encode(Kind.HEADER, b"[]"),
        frames.encode(Kind.HEADER, b"no json"),
        frames.encode_json(Kind.CANCEL, {"op": "hello"}),
    ],
)
def test_whatever_else_waits_is_handed_on_unread(door: Door, data: bytes) -> None:
    with door.knock(data):
        first = greet(door.config())
        assert first
        with first:
            first.setblocking(False)
            if data:
                assert first.recv(1 << 16) == data


def test_nobody_is_waited_for(door: Door) -> None:
    assert greet(door.config()) is None


@pytest.mark.parametrize("more", [{"token": "t"}, {"tcp": {"host": "::", "port": 1}}])
def test_by_an_address_nobody_is_answered_without_the_token(
    door: Door, more: dict[str, Any]
) -> None:
    with door.knock(HELLO) as caller:
        assert greet(door.config(**more)) is None
        caller.settimeout(0.05)
        with pytest.raises(TimeoutError):
            caller.recv(1)


@pytest.mark.parametrize("data", [b"no json", b"[]", b'{"listen": 9999}', b'{"listen": "x"}'])
def test_a_configuration_that_is_wrong_is_left_to_who_reads_it_properly(data: bytes) -> None:
    assert greet(data) is None
