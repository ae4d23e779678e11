import asyncio
import threading

import pytest

from atoll.host.threads import run_to_end


async def test_the_result_and_errors_come_back() -> None:
    assert await run_to_end(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await run_to_end(divmod, 1, 0)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancelled_caller_returns_only_after_the_work(fails: bool) -> None:
    started, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        go_on.wait(5)
        ended.set()
        if fails:
            raise OSError

    task = asyncio.create_task(run_to_end(work))
    await asyncio.to_thread(started.wait, 5)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
