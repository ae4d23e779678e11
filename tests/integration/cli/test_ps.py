"""``atoll ps``: what runs in a sandbox, what it printed, and its end."""

import json
from collections.abc import Iterator

import pytest

import atoll.sync
from integration.cli.conftest import Atoll


@pytest.fixture
def box(engine: str) -> Iterator[atoll.sync.Sandbox]:
    with atoll.sync.connect(engine) as env:
        sandbox = atoll.sync.get_sandbox(env.Sandbox, "ps")
        yield sandbox
        sandbox.destroy()


def test_processes_are_listed_with_their_status(command: Atoll, box: atoll.sync.Sandbox) -> None:
    box.start_process("exit 3", process_id="over").wait_for_exit(10)
    box.start_process("sleep 600", process_id="server")
    table = command("ps", "ps").stdout.decode()
    assert "over" in table
    assert "running" in table
    found = [json.loads(line) for line in command("ps", "ps", "--json").stdout.splitlines()]
    assert [(one["id"], one["status"], one["exitCode"]) for one in found] == [
        ("over", "failed", 3),
        ("server", "running", None),
    ]


def test_the_output_of_one_comes_as_it_was(command: Atoll, box: atoll.sync.Sandbox) -> None:
    box.start_process("printf 'a\\377'; sleep 0.5; echo b >&2", process_id="p")
    followed = command("ps", "ps", "p", "--follow")
    assert (followed.returncode, followed.stdout, followed.stderr) == (0, b"a\xff", b"b\n")
    assert command("ps", "ps", "p").stdout == b"a\xff"


def test_one_is_killed(command: Atoll, box: atoll.sync.Sandbox) -> None:
    box.start_process("sleep 600", process_id="p")
    done = command("ps", "ps", "p", "--kill", "KILL", "--json")
    assert json.loads(done.stdout)["status"] == "killed"


def test_what_is_not_there_is_an_error(command: Atoll, box: atoll.sync.Sandbox) -> None:
    done = command("ps", "ps", "none")
    assert done.returncode == 66
    assert b"no process 'none'" in done.stderr
    assert command("ps", "ps", "--follow").returncode == 2
