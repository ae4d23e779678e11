"""Several connections, none, slow ones."""

import json
import threading
import time
from pathlib import Path

from atoll.wire import frames
from atoll.wire.frames import Kind
from integration.agent.client import Client, attach, collect, control, eventually, output, parent


def agent_operation(agent: Client, id: str) -> dict[str, object]:
    operations = agent.call("operations")["operations"]
    found: dict[str, object] = next(entry for entry in operations if entry["id"] == id)
    return found


def test_attaching_again_from_an_offset_loses_and_repeats_nothing(agent: Client) -> None:
    """X08, S13: the command goes on while nobody is connected."""
    text = "for i in $(seq 200); do echo line $i; sleep 0.005; done"
    with agent.start(text, id="again") as first:
        first.until(Kind.STARTED)
        got = output([first.until(Kind.STDOUT), first.until(Kind.STDOUT)])
    with attach(agent, "again", len(got)) as second:
        got += output(list(second))
    assert got == "".join(f"line {n}\n" for n in range(1, 201)).encode()


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


def test_two_viewers_see_the_same(agent: Client) -> None:
    """T05."""
    with agent.start("sleep 0.3; seq 50000", id="shared") as first, attach(agent, "shared") as two:
        results: list[bytes] = []
        thread = threading.Thread(target=lambda: results.append(first.result().stdout))
        thread.start()
        assert two.result().stdout[-6:] == b"50000\n"
        thread.join()
    assert len(results[0]) == 288_894


def test_single_bytes_keep_the_record_bounded(agent: Client) -> None:
    """A frame per byte costs the supervisor no more memory than blocks do."""
    text = "for ((i = 0; i < 30000; i++)); do printf x; printf y >&2; done; sleep 30"
    with agent.start(text, id="bytes") as connection:
        pid = json.loads(connection.until(Kind.STARTED).payload)["pid"]
        total = 0
        while total < 60_000:
            total += len(output([frame])) if (frame := connection.frame()) else 60_000
        status = Path(f"/proc/{parent(pid)}/status").read_text()
        connection.send(Kind.CANCEL)
    resident = int(status.partition("VmRSS:")[2].split()[0])
    assert resident < 40_000


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


def test_a_command_that_nobody_reads_can_be_cancelled(agent: Client) -> None:
    """What it wrote before is kept for who attaches, its end is not held up."""
    with agent.start("head -c 9000000 /dev/zero; sleep 600", id="unread") as first:
        got = output([first.until(Kind.STDOUT)])
    time.sleep(0.3)
    control(agent, "unread", (Kind.CANCEL, b""))
    eventually(lambda: not agent_operation(agent, "unread")["running"])
    with attach(agent, "unread", len(got)) as second:
        result = collect(list(second))
    assert Kind.GAP not in {frame.kind for frame in result.frames}
    assert result.record["cancelled"]
    assert len(got) + len(result.stdout) == result.record["stdout_bytes"]
