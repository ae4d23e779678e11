"""What the router answers, refuses and survives."""

import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from atoll import errors
from atoll.agent import router
from atoll.agent.answer import Request
from atoll.agent.loop import READ, Loop
from atoll.wire import frames
from atoll.wire.frames import Kind
from integration.agent.client import Client, alive, end, eventually, launch


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Client]:
    """An agent of one test, which may be stopped by it."""
    directory = Path(tempfile.mkdtemp(prefix="atoll-agent-"))
    process = launch(directory, generation=7)
    yield Client(str(directory / "agent.sock"), process.pid, directory)
    end(process)


def test_hello_tells_protocol_and_generation(fresh: Client) -> None:
    reply = fresh.call("hello")
    assert (reply["protocol"], reply["generation"], reply["pid"]) == (1, 7, fresh.pid)


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[Client]:
    """An agent that was started ahead, for nobody."""
    directory = Path(tempfile.mkdtemp(prefix="atoll-agent-"))
    process = launch(directory, generation=0)
    yield Client(str(directory / "agent.sock"), process.pid, directory)
    end(process)


def test_an_agent_that_waits_takes_the_identity_of_one_sandbox_only(warm: Client) -> None:
    """Two sandboxes may have the same generation; who asks again did not hear the answer."""
    wanted: dict[str, Any] = {
        "generation": 3,
        "hostname": socket.gethostname(),
        "env": {"A": "mine"},
    }
    for _ in range(2):
        warm.call("assign", sandbox="n/one", **wanted)
    for other in ({"sandbox": "n/two", "generation": 3}, {"sandbox": "n/one", "generation": 4}):
        with pytest.raises(errors.StaleHandleError):
            warm.call("assign", **wanted | {"env": {"A": "theirs"}} | other)
    assert warm.call("hello")["generation"] == 3
    assert warm.exec("echo $A").stdout == b"mine\n"


def test_an_agent_that_was_started_for_a_sandbox_takes_no_identity(fresh: Client) -> None:
    with pytest.raises(errors.StaleHandleError):
        fresh.call("assign", sandbox="n/one", generation=7)


@pytest.mark.parametrize("op", ["nonsense", None, 7, "", "session.nonsense"])
def test_an_unknown_operation_is_a_typed_error(agent: Client, op: object) -> None:
    with pytest.raises(errors.ValidationFailedError):
        agent.call(op)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 64,
        b"GET / HTTP/1.1\r\n\r\n",
        frames.encode(Kind.STDIN, b"x"),
        b"\x01\xff\xff\xff\xff",
    ],
    ids=["ones", "http", "kind", "length"],
)
def test_what_is_no_header_is_hung_up_on(agent: Client, data: bytes) -> None:
    with agent.connect() as connection:
        connection.sock.sendall(data)
        with suppress(ConnectionResetError):
            assert connection.sock.recv(1) == b""
    assert agent.call("hello")


@pytest.mark.parametrize("payload", [b"", b"[]", b"{", b"3", b"[" * 1_000_000, b"\xff"])
def test_a_malformed_header_is_a_typed_error(agent: Client, payload: bytes) -> None:
    with agent.connect() as connection:
        connection.send(Kind.HEADER, payload)
        with pytest.raises(errors.ValidationFailedError):
            connection.until(Kind.REPLY)


def test_a_header_may_come_byte_by_byte(agent: Client) -> None:
    with agent.connect() as connection:
        for byte in frames.encode_json(Kind.HEADER, {"op": "hello"}):
            connection.sock.sendall(bytes([byte]))
        assert connection.until(Kind.REPLY)


def test_a_header_that_came_in_time_is_read_however_late_its_reader_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A round of the loop may take longer than a caller has: 200 forks of an agent that gets little CPU."""
    monkeypatch.setattr(router, "HEADER_TIMEOUT", 0.0)
    loop = Loop()
    heard: list[Request] = []
    done: list[router.Pending] = []
    ours, theirs = socket.socketpair()
    busy, ready = socket.socketpair()
    router.Pending(loop, ours, heard.append, done=done.append, on_wait=lambda: None)
    header = frames.encode_json(Kind.HEADER, {"op": "hello"})
    loop.watch(busy.fileno(), READ, lambda _: theirs.sendall(header))
    ready.send(b"x")
    loop.step()
    assert [request.header for request in heard] == [{"op": "hello"}]
    assert len(done) == 1
    for sock in (ours, theirs, busy, ready):
        sock.close()
    loop.close()


def test_a_silent_connection_holds_up_nobody(agent: Client) -> None:
    silent = [agent.connect() for _ in range(50)]
    silent[0].sock.sendall(b"\x01\x00")
    assert agent.exec("echo ok").stdout == b"ok\n"
    for connection in silent:
        connection.sock.close()


def test_descriptors_that_nobody_asked_for_are_closed(agent: Client) -> None:
    eventually(lambda: _children(agent.pid) == 1)  # with the one that waits it is at rest
    before = len(os.listdir(f"/proc/{agent.pid}/fd"))
    for _ in range(5):
        with agent.connect() as connection:
            connection.header(op="hello", fds=(0, 1, 2))
            connection.until(Kind.REPLY)
    eventually(lambda: len(os.listdir(f"/proc/{agent.pid}/fd")) <= before)


def test_finished_work_leaves_no_descriptor_and_no_process(agent: Client) -> None:
    def count() -> tuple[int, int]:
        return len(os.listdir(f"/proc/{agent.pid}/fd")), _children(agent.pid)

    agent.exec("true", session="default")
    agent.call("fs.exists", path="/")
    eventually(lambda: count()[1] == 1)
    before = count()
    for _ in range(10):
        agent.exec("true", session="default")
        agent.exec(["true"])
        agent.call("fs.exists", path="/")
        with pytest.raises(errors.CommandNotFoundError):
            agent.exec(["no-such-program"])
        agent.start("sleep 5", cancel_on_drop=True).sock.close()
    eventually(lambda: count() <= before)


def _children(pid: int) -> int:
    return len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def test_signals_root_inside_can_send_end_nothing(fresh: Client) -> None:
    fresh.call("hello")  # it has started
    kept = {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}
    for number in signal.valid_signals() - kept:
        os.kill(fresh.pid, number)
    assert fresh.exec("echo ok").stdout == b"ok\n"


def test_shutdown_ends_everything_and_answers_then(fresh: Client) -> None:
    with fresh.start("trap '' TERM; sleep 600 & echo $!; wait; sleep 600") as connection:
        pid = int(connection.until(Kind.STDOUT).payload[16:])
        left = int(fresh.exec("sleep 600 >/dev/null 2>&1 & echo $!").stdout)
        assert fresh.call("shutdown", grace=0.2) == {}
        assert connection.result().record["cancelled"]
    assert not alive(pid)
    assert not alive(left)
    eventually(lambda: not alive(fresh.pid))


def test_a_stopping_agent_takes_no_new_commands(fresh: Client) -> None:
    with fresh.start("trap '' TERM; sleep 600") as connection, fresh.connect() as stopping:
        connection.until(Kind.STARTED)
        stopping.header(op="shutdown", grace=1.5)
        time.sleep(0.2)
        with pytest.raises(errors.ContainerNotReadyError):
            fresh.exec("true")
        stopping.until(Kind.REPLY)


def test_commands_end_with_the_agent(fresh: Client) -> None:
    """On a bare host no pid namespace would end them."""
    with fresh.start("sleep 600 & echo $!; wait") as connection:
        pid = int(connection.until(Kind.STDOUT).payload[16:])
        os.kill(fresh.pid, signal.SIGKILL)
        eventually(lambda: not alive(pid))
