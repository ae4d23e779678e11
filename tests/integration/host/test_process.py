import asyncio
import os
import time
from pathlib import Path

import pytest

from atoll.host import process


async def test_exit_code_and_both_streams_come_back() -> None:
    done = await process.run(["sh", "-c", "cat; echo err >&2; exit 3"], stdin=b"in")
    assert done == (3, b"in", b"err\n")
    assert done.message == "err"


async def test_the_engines_environment_is_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets of the engine's environment must not reach tools of the host."""
    monkeypatch.setenv("ATOLL_API_KEY", "s3cret")
    done = await process.run(["env"], env={"EXTRA": "1"})
    assert b"s3cret" not in done.stdout
    assert b"EXTRA=1" in done.stdout


async def test_a_timeout_kills_the_whole_group(tmp_path: Path) -> None:
    late = tmp_path / "late"
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        await process.run(["sh", "-c", f"(sleep 1; touch {late}) & sleep 30"], timeout=0.2)
    assert time.monotonic() - started < 5
    await asyncio.sleep(1.2)
    assert not late.exists()


async def test_a_cancel_kills_the_whole_group(tmp_path: Path) -> None:
    late = tmp_path / "late"
    task = asyncio.create_task(process.run(["sh", "-c", f"sleep 1; touch {late}"]))
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(1.2)
    assert not late.exists()


async def test_output_over_the_limit_is_read_and_dropped() -> None:
    size = process.MAX_OUTPUT * 3
    done = await process.run(["head", "-c", str(size), "/dev/zero"])
    assert done.code == 0
    assert len(done.stdout) == process.MAX_OUTPUT


async def test_a_program_that_does_not_read_its_input_is_no_error() -> None:
    done = await process.run(["true"], stdin=b"x" * (1 << 20))
    assert done.code == 0


async def test_a_missing_program_is_a_file_not_found_error() -> None:
    with pytest.raises(FileNotFoundError):
        await process.run(["no-such-program-anywhere"])


async def test_only_descriptors_that_are_named_are_inherited() -> None:
    reader, writer = os.pipe()
    try:
        os.set_inheritable(writer, True)
        done = await process.run(["ls", "/proc/self/fd"])
        assert str(writer).encode() not in done.stdout.split()
        done = await process.run(["bash", "-c", f"echo x >&{writer}"], pass_fds=[writer])
        assert os.read(reader, 10) == b"x\n"
    finally:
        os.close(reader)
        os.close(writer)
