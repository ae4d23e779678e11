"""Output: all of it, in time, and bounded."""

import os
import signal
import time

import pytest

from atoll.wire.frames import Kind
from integration.agent.client import Client, alive, eventually


def test_output_is_byte_exact(agent: Client) -> None:
    """X11, X13: the last newline, NUL, invalid UTF-8 and CR stay."""
    result = agent.exec(r"printf 'a\0\377\376\r\n\n\nx'")
    assert result.stdout == b"a\0\xff\xfe\r\n\n\nx"


@pytest.mark.parametrize("count", [20_000, 50_000])
def test_every_byte_comes_before_the_exit(agent: Client, count: int) -> None:
    """S01."""
    want = "".join(f"{n}\n" for n in range(1, count + 1)).encode()
    for _ in range(5):
        result = agent.exec(["seq", str(count)])
        assert result.stdout == want
        assert result.frames[-1].kind == Kind.EXITED


def test_fifty_megabytes_flow(agent: Client) -> None:
    """X16: on one line, on stderr."""
    result = agent.exec("head -c 50000000 /dev/zero >&2")
    assert len(result.stderr) == result.record["stderr_bytes"] == 50_000_000


def test_a_limit_cuts_each_stream_and_counts_the_rest(agent: Client) -> None:
    """X16."""
    result = agent.exec("seq 100000; echo err >&2", output_limit=1000)
    assert len(result.stdout) == 1000
    assert result.stderr == b"err\n"
    assert result.record["truncated"]
    assert result.record["stdout_bytes"] == 588_895


def test_a_slow_reader_loses_nothing(agent: Client) -> None:
    """What the command wrote before it ended is owed, however long the caller takes."""
    with agent.start("seq 300000; (sleep 30 >/dev/null &)") as connection:
        time.sleep(1.0)
        assert connection.result().stdout.endswith(b"\n300000\n")


def test_a_background_child_does_not_hold_the_result(agent: Client) -> None:
    """X18: the call returns, the child lives on."""
    began = time.monotonic()
    result = agent.exec("sleep 30 & echo $!")
    assert time.monotonic() - began < 5
    pid = int(result.stdout)
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_a_background_child_may_write_on_after_the_exit(agent: Client) -> None:
    """Late output is dropped, but it neither blocks nor ends who writes it."""
    done = agent.directory / "done"
    agent.exec(f"(sleep 0.5; seq 100000; touch {done}) & true")
    eventually(done.exists)


def test_chunks_arrive_when_they_are_written(agent: Client) -> None:
    """S05, S06: no line buffering, nothing changed."""
    with agent.start("printf 10%%; sleep 0.5; printf '\\r20%%'") as connection:
        began = time.monotonic()
        assert connection.until(Kind.STDOUT).payload[16:] == b"10%"
        assert time.monotonic() - began < 0.45
        assert connection.result().stdout == b"\r20%"
