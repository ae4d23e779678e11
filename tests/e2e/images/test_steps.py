"""A step's output is seen while it runs, and nothing of a step outlives it."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from atoll.errors import RuntimeNotAvailableError
from atoll.images.steps import StepFailedError, Stopwatch, run_step


async def test_lines_arrive_while_the_step_runs() -> None:
    seen: list[tuple[str, float]] = []
    start = time.monotonic()
    await run_step(
        ["sh", "-c", "echo one; sleep 1; printf 'two\\rthree' >&2"],
        lambda line: seen.append((line, time.monotonic() - start)),
        timeout=30,
    )
    assert [line for line, _ in seen] == ["one", "two", "three"]
    assert seen[1][1] - seen[0][1] > 0.5


async def test_a_failure_has_its_code_and_last_lines() -> None:
    with pytest.raises(StepFailedError) as caught:
        await run_step(["sh", "-c", "seq 100; exit 3"], lambda _: None, timeout=30)
    assert caught.value.code == 3
    assert caught.value.tail.splitlines()[-1] == "100"
    assert len(caught.value.tail.splitlines()) == 40


async def test_a_missing_program_says_what_to_install() -> None:
    with pytest.raises(RuntimeNotAvailableError) as caught:
        await run_step(["no-such-tool"], lambda _: None, timeout=30)
    assert caught.value.context["tool"] == "no-such-tool"


async def test_a_line_without_end_is_bounded() -> None:
    seen: list[str] = []
    await run_step(["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"], seen.append, timeout=30)
    assert max(map(len, seen)) <= 2_000


async def test_what_a_cancelled_step_started_is_gone_with_its_mounts(tmp_path: Path) -> None:
    marker = tmp_path / "alive"
    script = f"""
        mount -t tmpfs tmpfs {tmp_path}/mnt
        setsid sh -c 'while :; do date +%s%N > {marker}; sleep 0.05; done' &
        wait
    """
    (tmp_path / "mnt").mkdir()
    task = asyncio.create_task(run_step(["sh", "-c", script], lambda _: None, timeout=30))
    while not marker.exists():
        await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    before = marker.read_text()
    await asyncio.sleep(0.3)
    assert marker.read_text() == before
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()


def test_a_step_ends_with_the_process_that_ran_it(tmp_path: Path) -> None:
    """Killed with -9: an orphan would go on writing into a store somebody else has locked."""
    marker = tmp_path / "alive"
    loop = f"setsid sh -c 'while :; do date +%s%N > {marker}; sleep 0.05; done' & wait"
    program = (
        "import asyncio, sys; from atoll.images.steps import run_step; "
        "asyncio.run(run_step(['sh', '-c', sys.argv[1]], print, timeout=60))"
    )
    runner = subprocess.Popen([sys.executable, "-c", program, loop])
    with runner:
        while not marker.exists():
            time.sleep(0.05)
        runner.kill()
    time.sleep(0.3)
    before = marker.read_text()
    time.sleep(0.3)
    assert marker.read_text() == before


async def test_a_step_over_its_time_is_ended() -> None:
    with pytest.raises(TimeoutError):
        await run_step(["sleep", "60"], lambda _: None, timeout=0.3)


async def test_a_step_can_have_another_root(tmp_path: Path) -> None:
    seen: list[str] = []
    (tmp_path / "proc").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/busybox").write_bytes(Path("/bin/busybox").read_bytes())
    (tmp_path / "bin/busybox").chmod(0o755)
    await run_step(["/bin/busybox", "ls", "/"], seen.append, timeout=30, root=tmp_path)
    assert seen == ["bin", "proc"]


def test_laps_are_told() -> None:
    seen: list[str] = []
    Stopwatch(seen.append).lap("packages")
    assert seen == ["packages: 0.0 s"]
