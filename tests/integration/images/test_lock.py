"""One changes the store at a time, whoever dies."""

import asyncio
import subprocess
import sys
from pathlib import Path

from atoll.images.lock import exclusive

HOLD = """
import asyncio, sys
from pathlib import Path
from atoll.images.lock import exclusive
async def main():
    async with exclusive(Path(sys.argv[1]), "x", print):
        print("held", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_a_second_waits_for_the_first_and_says_so_once(tmp_path: Path) -> None:
    order: list[str] = []

    async def second() -> None:
        async with exclusive(tmp_path / "lock", "builds", order.append):
            order.append("second")

    async with exclusive(tmp_path / "lock", "builds", order.append):
        task = asyncio.create_task(second())
        await asyncio.sleep(0.5)
        order.append("first")
    await task
    assert order == ["waiting for another process that builds", "first", "second"]


async def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path / "lock"], stdout=subprocess.PIPE
    )
    assert holder.stdout
    with holder, holder.stdout:
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
    async with asyncio.timeout(10):
        async with exclusive(tmp_path / "lock", "x", print):
            pass
