import asyncio
import http.client
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from atoll.workers import supervisor
from atoll.workers.supervisor import Worker, describe, refusing

CODE = """
import os
async def on_fetch(request, env, ctx):
    from atoll.workers import Response
    return Response(str(os.getpid()))
"""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


async def get(listener: socket.socket) -> tuple[int, str]:
    return await asyncio.to_thread(_get, *listener.getsockname())


def _get(host: str, port: int) -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, port, timeout=20)
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
async def worker(tmp_path: Path, listener: socket.socket, said: list[str]) -> AsyncIterator[Worker]:
    (tmp_path / "wrangler.json").write_text('{"name": "x", "main": "index.py"}')
    (tmp_path / "index.py").write_text(CODE)
    made = Worker(tmp_path, None, "unix:///no/engine.sock", listener, said.append)
    yield made
    await made.stop()


async def test_a_worker_that_was_killed_runs_again_and_it_is_said(
    worker: Worker, listener: socket.socket, said: list[str]
) -> None:
    await worker.start()
    status, pid = await get(listener)
    assert status == 200
    os.kill(int(pid), signal.SIGKILL)
    while not said:
        await asyncio.sleep(0.01)
    assert "SIGKILL" in said[0]
    status, again = await get(listener)
    assert (status, again != pid) == (200, True)


async def test_a_worker_that_cannot_run_answers_with_the_reason(
    worker: Worker, listener: socket.socket, said: list[str], tmp_path: Path
) -> None:
    (tmp_path / "index.py").write_text("import os\nos._exit(3)\n")
    await worker.start()
    status, body = await get(listener)
    assert status == 503
    assert "code 3" in body
    assert "code 3" in said[0]
    (tmp_path / "index.py").write_text(CODE)
    await worker.stop()
    await worker.start()
    assert (await get(listener))[0] == 200


async def test_a_stop_during_a_pause_leaves_the_socket_to_the_next_process(
    listener: socket.socket,
) -> None:
    async with refusing(listener, "why"):
        assert await get(listener) == (503, "why; see the output of atoll dev\n")
    waiting = asyncio.create_task(get(listener))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    async with refusing(listener, "then"):
        assert (await waiting)[1].startswith("then")


def test_an_end_is_told_in_words() -> None:
    assert describe(3) == "ended with code 3"
    assert describe(-9) == "was killed by SIGKILL"
    assert describe(-64) in {"was killed by SIGRTMAX", "was killed by signal 64"}
    assert supervisor.PAUSES[0] == 0
