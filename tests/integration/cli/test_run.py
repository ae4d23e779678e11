"""``atoll run``: live output, the command's exit code, nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from integration.cli.conftest import Atoll


def test_output_input_and_exit_code_are_the_commands_own(command: Atoll) -> None:
    script = "echo out; echo err >&2; cat; exit 3"
    done = command("run", "--", "sh", "-c", script, stdin=b"a\0b")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\na\0b", b"err\n")


def test_options_reach_the_command(command: Atoll) -> None:
    done = command("run", "-e", "A=1=2", "-w", "/tmp", "--", "sh", "-c", 'echo "$A"; pwd')
    assert done.stdout == b"1=2\n/tmp\n"


def test_a_result_as_json_has_everything(command: Atoll) -> None:
    done = command("run", "--json", "--", "sh", "-c", "echo x; exit 4")
    told = json.loads(done.stdout)
    assert (done.returncode, told["exitCode"], told["stdout"]) == (4, 4, "x\n")


def test_a_signal_is_told_as_shells_do(command: Atoll) -> None:
    assert command("run", "--", "sh", "-c", "kill -9 $$").returncode == 137


def test_a_new_sandbox_is_gone_afterwards_and_a_named_one_stays(command: Atoll) -> None:
    command("run", "--", "true")
    command("run", "--id", "kept", "--", "touch", "f")
    listed = command("containers", "list", "--json").stdout.decode().splitlines()
    ids = [json.loads(line)["id"] for line in listed]
    assert "kept" in ids
    assert not [id for id in ids if id.startswith("run-")]
    assert command("run", "--id", "kept", "--", "ls").stdout == b"f\n"
    assert command("containers", "delete", "kept").returncode == 0


def test_a_wrong_option_is_told_before_anything_runs(command: Atoll) -> None:
    done = command("run", "--env", "novalue", "--", "true")
    assert done.returncode == 2
    assert b"NAME=VALUE" in done.stderr


def test_an_empty_id_is_no_new_sandbox(command: Atoll) -> None:
    """``--id "$UNSET"`` made one of a random name, and kept it."""
    assert command("run", "--id", "", "--", "true").returncode == 64


def test_an_error_is_one_line(command: Atoll) -> None:
    done = command("run", "--id", "-bad-", "--", "true")
    assert done.returncode == 64
    assert done.stderr.count(b"\n") == 1
    assert b"sandbox id" in done.stderr


def test_a_command_whose_time_is_over_is_told_with_the_code_for_it(command: Atoll) -> None:
    done = command("run", "--timeout", "300ms", "--", "sh", "-c", "echo out; sleep 30")
    assert (done.returncode, done.stdout) == (124, b"out\n")
    assert b"was ended after" in done.stderr


def test_an_engine_that_is_not_there_is_told_once(command: Atoll, tmp_path: Path) -> None:
    done = command("run", "--url", f"unix://{tmp_path}/none.sock", "--", "true")
    assert done.returncode == 69
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("limit", ["-1", "nan", ""])
def test_a_wrong_duration_is_told_once_and_no_sandbox_looked_for(
    command: Atoll, tmp_path: Path, limit: str
) -> None:
    none = f"unix://{tmp_path}/none.sock"
    done = command("run", "--url", none, "--timeout", limit, "--", "true")
    assert done.returncode == 64
    assert done.stderr.count(b"\n") == 1
    assert b"--timeout" in done.stderr


@pytest.mark.parametrize(("words", "hinted"), [(["echo 'a b'"], True), (["no-such", "x"], False)])
def test_a_script_instead_of_a_program_is_answered_with_how_to_run_it(
    command: Atoll, words: list[str], hinted: bool
) -> None:
    done = command("run", "--", *words)
    assert done.returncode == 127
    assert (b"sh -c" in done.stderr) == hinted


def test_a_terminal_is_asked_for_with_its_size(engine: str) -> None:
    main, other = os.openpty()
    try:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "atoll.cli.main",
                "run",
                "-t",
                "--",
                "sh",
                "-c",
                "tty; stty size",
            ],
            stdin=other,
            stdout=other,
            stderr=other,
            env=os.environ | {"ATOLL_URL": engine},
        )
        code = process.wait(timeout=40)
        shown = os.read(main, 4096)
    finally:
        os.close(main)
        os.close(other)
    assert (code, b"/dev/pts/" in shown) == (0, True), shown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_verb_ends_its_command_and_sandbox(
    engine: str, command: Atoll, number: int
) -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "atoll.cli.main",
            "run",
            "--",
            "sh",
            "-c",
            "echo up; exec sleep 4646",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=os.environ | {"ATOLL_URL": engine},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    start = time.monotonic()
    process.send_signal(number)
    assert process.wait(timeout=20) == 128 + number
    process.stdout.close()
    assert time.monotonic() - start < 10
    assert b"run-" not in command("containers", "list").stdout
    assert subprocess.run(["pgrep", "-fx", "sleep 4646"], check=False).returncode == 1
