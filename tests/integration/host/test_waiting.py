import asyncio
import os

from atoll.host import waiting


async def test_the_end_of_a_process_is_waited_for() -> None:
    process = await asyncio.create_subprocess_exec("sleep", "600")
    wait = asyncio.create_task(waiting.ended(process.pid))
    done, _ = await asyncio.wait({wait}, timeout=0.05)
    assert not done
    process.kill()
    await process.wait()
    async with asyncio.timeout(10):
        await wait
        await waiting.ended(process.pid)  # one that is not there has ended


async def test_a_wait_that_is_given_up_leaves_nothing_to_the_loop() -> None:
    """A number that is given to another descriptor must wake nobody."""
    first, _ = pipe = os.pipe()
    wait = asyncio.create_task(waiting.readable(first))
    await asyncio.sleep(0)
    wait.cancel()
    await asyncio.wait({wait})
    assert not asyncio.get_running_loop().remove_reader(first)
    for fd in pipe:
        os.close(fd)
