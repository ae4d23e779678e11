"""Logs as a real agent writes them: whole, in order, without anybody connected."""

import os
from pathlib import Path
from typing import Any

from atoll.wire import frames
from atoll.wire.agent import LOG_SEGMENT
from atoll.wire.frames import Frame, Kind
from integration.agent.client import Client, eventually


def read_log(path: Path) -> list[Frame]:
    """Return all frames of a log that was never cut."""
    content, at, found = path.read_bytes(), 0, []
    while at < len(content):
        end = at + 5 + int.from_bytes(content[at + 1 : at + 5], "big")
        if content[at]:
            found.append(Frame(content[at], content[at + 5 : end]))
            at = end
        else:
            at += -at % LOG_SEGMENT or LOG_SEGMENT
    return found


def output(found: list[Frame], kind: int) -> bytes:
    return b"".join(frames.decode_output(one.payload).data for one in found if one.kind == kind)


def running(agent: Client, id: str) -> bool:
    operations = agent.call("operations")["operations"]
    return any(entry["id"] == id and entry["running"] for entry in operations)


def test_a_process_writes_to_its_log_and_outlives_its_connection(agent: Client) -> None:
    """Detached, with a log: nothing is kept back when nobody is connected, and order is kept."""
    text = "sleep 0.3; head -c 9000000 /dev/zero; echo err >&2; sleep 0.1; echo out; exit 3"
    path = agent.directory / "log"
    fields: dict[str, Any] = {"id": "logged", "detach": True, "quiet": True, "log_limit": 64 << 20}
    with open(path, "wb") as log, agent.start(text, fds=(log.fileno(),), **fields) as connection:
        connection.until(Kind.STARTED)
    eventually(lambda: not running(agent, "logged"))
    found = read_log(path)
    kinds = [frame.kind for frame in found]
    assert [kinds[0], *kinds[-3:]] == [Kind.STARTED, Kind.STDERR, Kind.STDOUT, Kind.EXITED]
    assert output(found, Kind.STDOUT) == b"\0" * 9_000_000 + b"out\n"
    assert output(found, Kind.STDERR) == b"err\n"


def test_the_space_of_a_long_log_is_bounded_by_the_agent_alone(agent: Client) -> None:
    path = agent.directory / "ring"
    fields: dict[str, Any] = {"id": "ring", "detach": True, "quiet": True, "log_limit": 2 << 20}
    text = "head -c 20000000 /dev/zero | tr '\\0' x"
    with open(path, "wb") as log, agent.start(text, fds=(log.fileno(),), **fields) as connection:
        connection.until(Kind.EXITED)
    stat = path.stat()
    assert stat.st_size > 20_000_000
    assert stat.st_blocks * 512 <= 3 << 20


def test_a_quiet_connection_is_told_of_start_and_end_only(agent: Client) -> None:
    fields: dict[str, Any] = {"id": "quiet", "detach": True, "quiet": True, "log_limit": 0}
    with (
        open(agent.directory / "quiet", "wb") as log,
        agent.start("echo loud", fds=(log.fileno(),), **fields) as connection,
    ):
        kinds = [frame.kind for frame in connection if frame.kind != Kind.HEARTBEAT]
    assert kinds == [Kind.STARTED, Kind.EXITED]


def test_a_log_without_space_harms_nobody_else(agent: Client) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    result = agent.exec("echo seen", detach=True, log_limit=0, fds=(full,))
    os.close(full)
    assert (result.stdout, result.code) == (b"seen\n", 0)


def test_a_process_of_a_session_starts_where_its_shell_is_and_takes_no_turn(agent: Client) -> None:
    agent.call("session.create", id="busy", env={"A": "1"})
    agent.exec("cd /tmp; export B=2; C=3", session="busy")
    text = "echo $PWD $A $B $C; sleep 5"
    with agent.start(text, id="beside", detach=True, session="busy") as connection:
        assert connection.until(Kind.STDOUT).payload[16:] == b"/tmp 1 2\n"
        assert agent.exec("echo next", session="busy").stdout == b"next\n"
        agent.call("session.delete", id="busy")
        connection.until(Kind.EXITED)
