"""The agent by TCP: the same protocol, for those who know the token."""

import json
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from atoll import errors
from atoll.agent import listener as module
from atoll.agent.listener import Gate
from atoll.wire import frames
from atoll.wire.frames import Kind
from integration.agent.client import Client, Connection, end, eventually, launch

TOKEN = "t" * 43


class TcpConnection(Connection):
    def __init__(self, port: int, token: object) -> None:
        super().__init__(socket.create_connection(("127.0.0.1", port)))
        self.token = token

    def header(self, fds: tuple[int, ...] = (), **fields: Any) -> None:
        super().header(fds, **fields, **({} if self.token is None else {"token": self.token}))


class TcpClient(Client):
    """A client that knows the token, or another one."""

    token: object = TOKEN

    def connect(self) -> Connection:
        return TcpConnection(int(self.path), self.token)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture(scope="module")
def tcp() -> Iterator[TcpClient]:
    """An agent that opens the address by itself."""
    directory = Path(tempfile.mkdtemp(prefix="atoll-agent-"))
    port = _free_port()
    process = launch(directory, tcp={"host": "127.0.0.1", "port": port}, token=TOKEN)
    client = TcpClient(str(port), process.pid, directory)
    eventually(lambda: _listens(port))
    yield client
    end(process)
    shutil.rmtree(directory)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    "token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1], 7, [TOKEN], "\ud800"]
)
def test_without_the_token_there_is_nothing_but_a_typed_error(
    tcp: TcpClient, token: object
) -> None:
    with TcpConnection(int(tcp.path), token) as connection:
        connection.header(op="exec", id="stolen", command="true")
        found = list(connection)
    assert [frame.kind for frame in found] == [Kind.ERROR]
    assert isinstance(errors.from_wire(json.loads(found[0].payload)), errors.UnauthorizedError)
    with pytest.raises(errors.OperationNotFoundError):
        tcp.call("attach", id="stolen")


def test_commands_streams_stdin_and_files_work_as_by_a_unix_socket(tcp: TcpClient) -> None:
    assert tcp.call("hello")["pid"] == tcp.pid
    assert tcp.exec("echo out; echo err >&2; exit 3").code == 3
    assert tcp.exec(["cat"], stdin=b"x" * 3_000_000).stdout == b"x" * 3_000_000
    assert tcp.call("fs.exists", path="/")["exists"]
    assert tcp.exec("exit 4", session="default").record["session_ended"]


def test_a_command_is_attached_to_after_its_connection_broke(tcp: TcpClient) -> None:
    with tcp.start("echo one; sleep 0.5; echo two", id="again") as connection:
        connection.until(Kind.STDOUT)
    with tcp.connect() as connection:
        connection.header(op="attach", id="again", from_offset=0)
        assert connection.result().stdout == b"one\ntwo\n"


def test_a_process_whose_log_cannot_travel_is_a_typed_error(tcp: TcpClient) -> None:
    with pytest.raises(errors.NotSupportedByRuntimeError):
        tcp.exec("true", detach=True, log_limit=1 << 22)


def test_who_sends_no_header_keeps_out_nobody_who_does(
    tcp: TcpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody inside can connect; the oldest silent one makes room."""
    silent = [socket.create_connection(("127.0.0.1", int(tcp.path))) for _ in range(600)]
    assert tcp.exec(["echo", "on"]).stdout == b"on\n"
    for sock in silent:
        sock.close()


def test_guesses_are_answered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_GUESSES", 2)
    gate, answered = Gate(TOKEN), []
    for _ in range(4):
        with pytest.raises(errors.UnauthorizedError):
            gate.check({"token": "x"})
        answered.append(gate.answers)
    assert answered == [True, True, False, False]
    header = {"op": "hello", "token": TOKEN}
    gate.check(header)
    assert header == {"op": "hello"}


def test_without_a_token_of_ours_none_is_needed() -> None:
    Gate("").check({"op": "hello"})


def test_half_headers_of_strangers_take_no_more_than_their_share_of_memory(
    tcp: TcpClient,
) -> None:
    """Each may announce 8 MiB; 40 of them would be more than all the agent has."""
    strangers = [TcpConnection(int(tcp.path), None) for _ in range(40)]
    piece = frames.encode_head(Kind.HEADER, frames.MAX_FRAME) + bytes(2 << 20)
    with suppress(OSError):
        for stranger in strangers:
            stranger.sock.settimeout(5)
            stranger.sock.sendall(piece)
    assert tcp.exec("echo in time").stdout == b"in time\n"
    assert sum(_is_hung_up(stranger) for stranger in strangers) >= 20
    for stranger in strangers:
        stranger.sock.close()


def _is_hung_up(connection: Connection) -> bool:
    connection.sock.setblocking(False)
    try:
        return connection.sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
