"""Programs that are followed while they run."""

import asyncio
import os
from pathlib import Path

import pytest

from atoll.host import process


async def test_each_line_is_told_as_it_comes_and_the_code_at_the_end() -> None:
    lines: list[str] = []
    code = await process.follow(["sh", "-c", "echo out; echo err >&2; printf '\\377'; exit 3"],
                                lines.append)  # fmt: skip
    assert (code, lines) == (3, ["out", "err"])


async def test_a_line_without_an_end_takes_no_memory() -> None:
    lines: list[str] = []
    await process.follow(["sh", "-c", "head -c 10000000 /dev/zero; echo; echo end"], lines.append)
    assert [len(lines[0]), lines[1]] == [process.MAX_LINE, "end"]


async def test_who_stops_following_ends_the_program_with_all_it_started(tmp_path: Path) -> None:
    started = asyncio.Event()
    script = f"sleep 1000 & echo $! > {tmp_path}/pid; echo started; wait"
    following = asyncio.create_task(process.follow(["sh", "-c", script], lambda _: started.set()))
    async with asyncio.timeout(10):
        await started.wait()
    following.cancel()
    await asyncio.wait({following})
    pid = int((tmp_path / "pid").read_text())
    async with asyncio.timeout(10):
        while _runs(pid):
            await asyncio.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_program_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        await process.follow(["no-such-program"], lambda _: None)


async def test_it_gets_a_small_environment_and_no_privileges_that_it_does_not_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET", "x")
    lines: list[str] = []
    await process.follow(["sh", "-c", "id -u; echo ${SECRET-none} $A"], lines.append,
                         env={"A": "b"}, unprivileged=True)  # fmt: skip
    assert lines == ["65534" if os.geteuid() == 0 else str(os.getuid()), "none b"]
