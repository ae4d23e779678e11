"""Connections of a command: attach, drop, control, terminals, logs, queues."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from atoll import errors
from atoll.wire import frames
from atoll.wire.frames import Frame, Kind
from integration.agent.client import Client, Connection, alive, collect, eventually


def output(found: list[Frame]) -> bytes:
    return b"".join(
        frames.decode_output(frame.payload).data
        for frame in found
        if frame.kind in {Kind.STDOUT, Kind.STDERR}
    )


def attach(agent: Client, id: str, from_offset: int = 0) -> Connection:
    connection = agent.connect()
    connection.header(op="attach", id=id, from_offset=from_offset)
    return connection


def test_events_are_numbered_and_positioned(agent: Client) -> None:
    result = agent.exec("seq 20000; echo end >&2")
    numbers, at = [], 0
    for frame in result.frames[1:-1]:
        seq, offset, data = frames.decode_output(frame.payload)
        assert offset == at
        at += len(data)
        numbers.append(seq)
    assert numbers == list(range(1, len(numbers) + 1))
    assert (result.record["seq"], result.record["offset"]) == (len(numbers) + 1, at)


def test_attaching_again_from_an_offset_loses_and_repeats_nothing(agent: Client) -> None:
    """X08, S13: the command goes on while nobody is connected."""
    text = "for i in $(seq 200); do echo line $i; sleep 0.005; done"
    with agent.start(text, id="again") as first:
        first.until(Kind.STARTED)
        got = output([first.until(Kind.STDOUT), first.until(Kind.STDOUT)])
    with attach(agent, "again", len(got)) as second:
        got += output(list(second))
    assert got == "".join(f"line {n}\n" for n in range(1, 201)).encode()


def test_an_ended_command_is_replayed_to_who_attaches(agent: Client) -> None:
    agent.exec("seq 50000; exit 4", id="replayed")
    with attach(agent, "replayed", 100_001) as connection:
        found = list(connection)
    want = "".join(f"{n}\n" for n in range(1, 50_001)).encode()
    assert output(found) == want[100_001:]
    assert json.loads(found[-1].payload)["exit_code"] == 4


def test_an_exec_with_a_known_id_attaches_and_never_runs_twice(agent: Client) -> None:
    mark = agent.directory / "runs"
    text = f"echo run >> {mark}; sleep 0.3; echo out"
    with agent.start(text, id="once") as first, agent.start(text, id="once") as second:
        assert first.result().stdout == second.result().stdout == b"out\n"
    assert agent.exec(text, id="once").stdout == b"out\n"
    assert mark.read_text() == "run\n"


def test_a_known_id_with_another_command_is_a_conflict(agent: Client) -> None:
    agent.exec("echo a", id="taken")
    with pytest.raises(errors.IdempotencyConflictError):
        agent.exec("echo b", id="taken")


def test_an_unknown_operation_cannot_be_attached_to(agent: Client) -> None:
    with attach(agent, "never") as connection, pytest.raises(errors.OperationNotFoundError):
        connection.until(Kind.EXITED)


def test_output_beyond_the_window_is_a_gap_and_not_silence(agent: Client) -> None:
    agent.exec("head -c 20000000 /dev/zero", id="large")
    with attach(agent, "large") as connection:
        found = list(connection)
    gap = json.loads(next(frame for frame in found if frame.kind == Kind.GAP).payload)
    assert gap["from_offset"] == 0
    assert gap["to_offset"] + len(output(found)) == 20_000_000


def test_a_command_that_nobody_reads_waits(agent: Client) -> None:
    """An engine that is gone for a while costs no byte."""
    with agent.start("seq 2000000", id="waits") as first:
        got = output([first.until(Kind.STDOUT)])
    time.sleep(0.5)
    assert agent_operation(agent, "waits")["running"]
    with attach(agent, "waits", len(got)) as second:
        found = list(second)
    assert Kind.GAP not in {frame.kind for frame in found}
    assert len(got + output(found)) == 14_888_896


def agent_operation(agent: Client, id: str) -> dict[str, object]:
    operations = agent.call("operations")["operations"]
    found: dict[str, object] = next(entry for entry in operations if entry["id"] == id)
    return found


def test_single_bytes_keep_the_record_bounded(agent: Client) -> None:
    """A frame per byte costs the supervisor no more memory than blocks do."""
    text = "for ((i = 0; i < 30000; i++)); do printf x; printf y >&2; done; sleep 30"
    with agent.start(text, id="bytes") as connection:
        pid = json.loads(connection.until(Kind.STARTED).payload)["pid"]
        while frames.decode_output(connection.until(Kind.STDERR).payload).offset < 59_000:
            pass
        status = Path(f"/proc/{parent(pid)}/status").read_text()
        connection.send(Kind.CANCEL)
    resident = int(status.partition("VmRSS:")[2].split()[0])
    assert resident < 40_000


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_two_viewers_see_the_same(agent: Client) -> None:
    """T05."""
    with agent.start("sleep 0.3; seq 50000", id="shared") as first, attach(agent, "shared") as two:
        results: list[bytes] = []
        thread = threading.Thread(target=lambda: results.append(first.result().stdout))
        thread.start()
        assert two.result().stdout[-6:] == b"50000\n"
        thread.join()
    assert len(results[0]) == 288_894


def test_a_dropped_connection_cancels_when_the_caller_has_no_id(agent: Client) -> None:
    with agent.start("sleep 600 & echo $!; wait", cancel_on_drop=True) as connection:
        pid = int(connection.until(Kind.STDOUT).payload[16:])
    eventually(lambda: not alive(pid))


def test_a_dropped_connection_without_a_cancel_ends_nothing(agent: Client) -> None:
    with agent.start("sleep 600 & echo $!; wait", id="kept") as connection:
        pid = int(connection.until(Kind.STDOUT).payload[16:])
    time.sleep(0.3)
    assert alive(pid)
    control(agent, "kept", (Kind.CANCEL, b""))
    eventually(lambda: not alive(pid))


def control(agent: Client, id: str, *messages: tuple[int, bytes]) -> dict[str, object]:
    with agent.connect() as connection:
        connection.header(op="control", id=id)
        for kind, payload in messages:
            connection.send(kind, payload)
        connection.send(Kind.END)
        reply: dict[str, object] = json.loads(connection.until(Kind.REPLY).payload)
        return reply


def test_control_feeds_standard_input(agent: Client) -> None:
    """X19: interactive input from other connections than the one that reads."""
    with agent.start("read a; read b; echo $b $a", id="fed", stdin=True) as connection:
        control(agent, "fed", (Kind.STDIN, b"one\n"))
        control(agent, "fed", (Kind.STDIN, b"two\n"), (Kind.STDIN_CLOSE, b""))
        assert connection.result().stdout == b"two one\n"
    assert control(agent, "fed", (Kind.STDIN, b"late")) == {"running": False}


def test_input_for_a_command_without_any_is_refused(agent: Client) -> None:
    with agent.start("sleep 30", id="unfed", cancel_on_drop=True) as connection:
        connection.until(Kind.STARTED)
        with pytest.raises(errors.ValidationFailedError):
            control(agent, "unfed", (Kind.STDIN, b"x"))


def test_a_malformed_control_frame_harms_only_its_connection(agent: Client) -> None:
    with agent.start("sleep 0.5; echo fine", id="sturdy") as connection:
        for kind, payload in [
            (Kind.RESIZE, b"{"),
            (Kind.SIGNAL, b"[]"),
            (Kind.SIGNAL, b'{"signal":"X"}'),
        ]:
            with pytest.raises(errors.ValidationFailedError):
                control(agent, "sturdy", (kind, payload))
        assert connection.result().stdout == b"fine\n"


def test_a_process_writes_to_its_logs_and_outlives_its_connection(agent: Client) -> None:
    """Detached, with two log descriptors: nothing is kept back when nobody is connected."""
    paths = [agent.directory / "out.log", agent.directory / "err.log"]
    fds = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for path in paths]
    text = "sleep 0.3; head -c 9000000 /dev/zero; echo err >&2; (sleep 0.5; echo late) &"
    with agent.start(text, id="logged", detach=True, log=True, fds=tuple(fds)) as connection:
        connection.until(Kind.STARTED)
    for fd in fds:
        os.close(fd)
    eventually(lambda: paths[0].read_bytes()[-5:] == b"late\n")
    assert paths[0].stat().st_size == 9_000_005
    assert paths[1].read_bytes() == b"err\n"
    assert not agent_operation(agent, "logged")["running"]


def test_a_log_without_space_is_a_gap(agent: Client) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    result = agent.exec("echo lost", detach=True, log=True, fds=(full, full))
    os.close(full)
    gap = json.loads(next(f for f in result.frames if f.kind == Kind.GAP).payload)
    assert (gap["from_offset"], gap["to_offset"]) == (0, 5)
    assert "No space" in gap["reason"]
    assert result.stdout == b"lost\n"


def test_a_terminal_is_one(agent: Client) -> None:
    """T05: size, resize, control characters, end of input."""
    with agent.start("tty; stty size; cat; stty size; exit 3", pty=True, cols=91, rows=17) as c:
        got = b""
        while b"17 91" not in got:
            got += c.until(Kind.STDOUT).payload[16:]
        c.send(Kind.RESIZE, b'{"cols":50,"rows":20}')
        c.send(Kind.STDIN, b"typed\n")
        c.send(Kind.STDIN_CLOSE)
        result = c.result()
    assert got.startswith(b"/dev/pts/")
    assert result.stdout.endswith(b"typed\r\n20 50\r\n")
    assert (result.code, result.stderr) == (3, b"")


def test_control_c_interrupts_on_a_terminal(agent: Client) -> None:
    with agent.start("echo go; sleep 99", pty=True) as connection:
        connection.until(Kind.STDOUT)
        connection.send(Kind.STDIN, b"\x03")
        assert connection.result().record["signal"] == "SIGINT"


def test_ten_megabytes_on_a_terminal_come_through(agent: Client) -> None:
    result = agent.exec("head -c 10000000 /dev/zero | tr '\\0' x", pty=True)
    assert len(result.stdout) == 10_000_000


def test_a_paste_of_64_kilobytes_reaches_a_raw_terminal(agent: Client) -> None:
    text = "stty raw -echo; echo go; head -c 65536 | cksum"
    with agent.start(text, pty=True) as connection:
        connection.until(Kind.STDOUT)
        connection.send(Kind.STDIN, b"p" * 65536)
        assert b" 65536" in connection.result().stdout


def test_a_killed_supervisor_is_an_error_and_never_a_code(agent: Client) -> None:
    """Root inside may kill it: the outcome is not known, and nothing of the command is left."""
    with agent.start("sleep 600 & echo $$ $!; wait", id="murdered") as connection:
        shell, child = map(int, connection.until(Kind.STDOUT).payload[16:].split())
        os.kill(parent(shell), 9)
        assert connection.frame() is None
    eventually(lambda: not alive(shell) and not alive(child))
    with attach(agent, "murdered") as connection:
        found = list(connection)
    with pytest.raises(errors.CommandExecutionError, match="not known"):
        collect(found)
    assert agent.exec("echo next").stdout == b"next\n"
