"""Operations: identity, replay, listing."""

import json
import socket
import threading
from pathlib import Path

import pytest

from atoll import errors
from atoll.wire.frames import Kind
from integration.agent.client import Client, attach, end, eventually, launch, output


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


def test_more_commands_at_once_than_its_driver_allows_are_refused(tmp_path: Path) -> None:
    process = launch(tmp_path, commands=2)
    limited = Client(str(tmp_path / "agent.sock"), process.pid, tmp_path)
    try:
        with limited.start("sleep 60"), limited.start("sleep 60"):
            with pytest.raises(errors.ResourceBusyError) as caught:
                limited.exec("true")
            assert caught.value.context["limit"] == 2
    finally:
        end(process)


def test_operations_are_listed(agent: Client) -> None:
    for n in range(30):
        agent.exec(["true"], id=f"listed-{n}")
    listed = {entry["id"]: entry for entry in agent.call("operations")["operations"]}
    assert {f"listed-{n}" for n in range(30)} <= set(listed)
    assert not listed["listed-0"]["running"]


def test_an_early_hang_up_leaves_the_command_to_its_operation(agent: Client) -> None:
    """The HEADER is enough: the engine may die right after it."""
    connection = agent.start("echo done", id="orphan")
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.sock.close()

    def ended() -> bool:
        listed = agent.call("operations")["operations"]
        return any(entry["id"] == "orphan" and not entry["running"] for entry in listed)

    eventually(ended)
    with agent.connect() as attached:
        attached.header(op="attach", id="orphan")
        found = list(attached)
    assert json.loads(found[-1].payload)["exit_code"] == 0


def test_many_commands_at_once_all_succeed(agent: Client) -> None:
    """Semantics "Commands" 9: 50 in parallel."""
    connections = [agent.start(f"sleep 0.2; echo {n}") for n in range(50)]
    assert [int(connection.result().stdout) for connection in connections] == list(range(50))


def test_a_mixture_of_calls_from_several_callers_leaves_nothing(agent: Client) -> None:
    failures: list[str] = []

    def call(caller: int) -> None:
        for n in range(12):
            session = f"mixed-{caller}-{n}"
            agent.call("session.create", id=session)
            agent.start("sleep 3", session=session, cancel_on_drop=True).sock.close()
            echoed = agent.exec(f"echo {n}", session="default").stdout
            timed = agent.exec("sleep 5", timeout=0.05).record
            piped = agent.exec("cat; (sleep 1 &)", stdin=b"x" * 100_000).stdout
            agent.call("session.delete", id=session)
            if (echoed, timed["timed_out"], len(piped)) != (b"%d\n" % n, True, 100_000):
                failures.append(f"{caller} {n} {echoed!r} {timed} {len(piped)}")

    threads = [threading.Thread(target=call, args=(caller,)) for caller in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    listed = agent.call("operations")["operations"]
    assert [entry for entry in listed if entry["running"]] == []
