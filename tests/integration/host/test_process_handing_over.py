import asyncio
import os
import signal
import tempfile
from collections.abc import Iterator

import pytest

from atoll.host import process


@pytest.fixture
def output() -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        yield file.fileno()


def told(output: int) -> bytes:
    return os.pread(output, 1 << 16, 0)


async def test_descriptors_arrive_from_three_on_in_their_order(output: int) -> None:
    """Their numbers here may overlap with those there."""
    pipes = [os.pipe() for _ in range(6)]
    try:
        for number, (_, write) in enumerate(pipes):
            os.write(write, b"%d" % number)
        reads = [read for read, _ in reversed(pipes)]
        script = "for fd in 3 4 5 6 7 8; do head -c 1 <&$fd; done; test ! -e /proc/self/fd/9"
        argv = ["/bin/sh", "-c", script]
        assert await process.run_handing_over(argv, reads, output=output, timeout=10) == 0
    finally:
        for pair in pipes:
            for fd in pair:
                os.close(fd)
    assert told(output) == b"543210"


async def test_the_exit_code_and_both_streams_are_the_programs(output: int) -> None:
    argv = ["/bin/sh", "-c", "echo out; echo err >&2; exit 7"]
    assert await process.run_handing_over(argv, [], output=output, timeout=10) == 7
    assert told(output) == b"out\nerr\n"


async def test_a_signal_is_a_negative_code(output: int) -> None:
    argv = ["/bin/sh", "-c", "kill -9 $$"]
    assert await process.run_handing_over(argv, [], output=output, timeout=10) == -signal.SIGKILL


async def test_nothing_of_the_engines_environment_or_ignored_signals_gets_in(output: int) -> None:
    os.environ["ATOLL_TEST_LEAK"] = "1"
    try:
        argv = ["/bin/sh", "-c", "env; grep SigIgn /proc/self/status"]
        assert await process.run_handing_over(argv, [], output=output, timeout=10) == 0
    finally:
        del os.environ["ATOLL_TEST_LEAK"]
    assert b"ATOLL_TEST_LEAK" not in told(output)
    ignored = int(told(output).split()[-1], 16)
    assert not ignored & 1 << (signal.SIGPIPE - 1)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_nothing_of_the_group_is_left_when_it_takes_too_long(
    output: int, cancelled: bool
) -> None:
    argv = ["/bin/sh", "-c", "sleep 50 & echo $$ $!; wait"]
    running = asyncio.ensure_future(
        process.run_handing_over(argv, [], output=output, timeout=10 if cancelled else 0.3)
    )
    while len(told(output).split()) < 2:
        await asyncio.sleep(0.01)
    if cancelled:
        running.cancel()
    with pytest.raises(asyncio.CancelledError if cancelled else TimeoutError):
        await running
    for _ in range(200):
        if not any(_runs(int(pid)) for pid in told(output).split()):
            return
        await asyncio.sleep(0.01)
    pytest.fail("a process of the group is left")


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter: gone between open and read
        return False


async def test_a_missing_program_is_told(output: int) -> None:
    with pytest.raises(FileNotFoundError):
        await process.run_handing_over(["/no/such/program"], [], output=output, timeout=1)
