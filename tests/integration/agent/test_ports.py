"""Connections to servers inside that the agent carries: what it answers, and when it lets go."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from atoll import errors
from atoll.wire import frames
from atoll.wire.frames import Kind
from integration.agent.client import TIMEOUT, Client, Connection

DATA = os.urandom(1 << 20)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(TIMEOUT)
        yield listening


def begin(agent: Client, port: Any, **fields: Any) -> Connection:
    connection = agent.connect()
    connection.header(**{"op": "port.connect", "address": "127.0.0.1", "port": port, **fields})
    return connection


def test_what_follows_the_header_at_once_arrives(agent: Client, server: socket.socket) -> None:
    with begin(agent, server.getsockname()[1]) as connection:
        connection.send(Kind.DATA, b"early")
        connection.send(Kind.END)
        inside, _ = server.accept()
        with inside, inside.makefile("rb") as file:
            assert file.read() == b"early"
            inside.sendall(b"late")
            inside.shutdown(socket.SHUT_WR)
            assert [frame.kind for frame in connection] == [Kind.REPLY, Kind.DATA, Kind.END]


def test_nobody_there_is_a_typed_error(agent: Client, server: socket.socket) -> None:
    port = server.getsockname()[1]
    server.close()
    with begin(agent, port) as connection, pytest.raises(errors.ServiceNotRespondingError) as told:
        connection.until(Kind.REPLY)
    assert told.value.context["reason"] == "refused"


def test_a_full_queue_is_a_timeout(agent: Client) -> None:
    with socket.socket() as server, socket.socket() as first, socket.socket() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for one in (first, second):
            one.setblocking(False)
            one.connect_ex(server.getsockname())
        with (
            begin(agent, server.getsockname()[1], timeout=0.2) as connection,
            pytest.raises(errors.ServiceNotRespondingError) as told,
        ):
            connection.until(Kind.REPLY)
    assert told.value.context["reason"] == "timeout"


@pytest.mark.parametrize("fields", [{"port": "x"}, {"port": None}])
def test_a_wrong_header_is_a_typed_error(agent: Client, fields: dict[str, Any]) -> None:
    with begin(agent, **fields) as connection, pytest.raises(errors.ValidationFailedError):
        connection.until(Kind.REPLY)


def test_an_address_that_is_none_is_a_typed_error(agent: Client) -> None:
    with (
        begin(agent, 80, address="localhost") as connection,
        pytest.raises(errors.ServiceNotRespondingError),
    ):
        connection.until(Kind.REPLY)


def test_the_end_of_the_caller_ends_it_when_nothing_moves(
    agent: Client, server: socket.socket
) -> None:
    connection = begin(agent, server.getsockname()[1])
    connection.until(Kind.REPLY)
    inside, _ = server.accept()
    with inside:
        connection.sock.close()
        inside.settimeout(TIMEOUT)
        assert inside.recv(1) == b""


def test_a_server_that_reads_nothing_gets_what_a_gone_caller_sent(
    agent: Client, server: socket.socket
) -> None:
    connection = begin(agent, server.getsockname()[1])
    connection.until(Kind.REPLY)
    inside, _ = server.accept()
    size = 0
    connection.sock.settimeout(0.5)
    with suppress(TimeoutError):
        while True:
            size += connection.sock.send(frames.encode(Kind.DATA, b"x" * 10)[-15:])
    connection.sock.close()
    with inside, inside.makefile("rb") as file:
        inside.settimeout(TIMEOUT)
        assert len(file.read()) == size // 15 * 10


def test_an_answer_is_read_whole_though_the_server_broke_the_connection(
    agent: Client, server: socket.socket
) -> None:
    with begin(agent, server.getsockname()[1]) as connection:
        connection.until(Kind.REPLY)
        inside, _ = server.accept()
        inside.sendall(b"too large")
        assert connection.until(Kind.DATA).payload == b"too large"
        inside.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        inside.close()
        with pytest.raises(errors.ServiceNotRespondingError, match="hung up"):
            connection.until(Kind.END)


def test_other_frames_end_it(agent: Client, server: socket.socket) -> None:
    for kind in (Kind.CANCEL, Kind.STDIN):
        with begin(agent, server.getsockname()[1]) as connection:
            connection.until(Kind.REPLY)
            connection.send(kind)
            with pytest.raises((EOFError, ConnectionError)):
                connection.until(Kind.END)
