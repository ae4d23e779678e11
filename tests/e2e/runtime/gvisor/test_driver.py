"""What a sandbox is for, at level gvisor; all of the conformance suite runs by ``--level gvisor``."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import atoll
from atoll.wire.agent import AGENT_PORT
from e2e.runtime.gvisor.conftest import Engines

pytestmark = pytest.mark.e2e

OPENED = """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    for fd in os.listdir(f"/proc/{pid}/fd") if pid != str(os.getpid()) else ():
        path = f"/proc/{pid}/fd/{fd}"
        for mode in (os.O_RDONLY, os.O_WRONLY):
            try:
                name = os.readlink(path)
                os.close(os.open(path, mode | os.O_NONBLOCK))
            except OSError:
                continue
            if name.startswith(("/memfd:", "host:")):
                print(path, name, "written" if mode else "read")
"""
"""Memory files of other processes that can be opened."""

WRITERS = """
for i in 1 2 3 4; do (while :; do echo x > /workspace/f$i; rm /workspace/f$i; done) & done
sleep 5; kill $(jobs -p)
"""

SERVER = "python3 -m http.server 8000 --bind 127.0.0.1"


@pytest.fixture
async def env(engines: Engines) -> AsyncIterator[atoll.Environment]:
    async with atoll.connect(engines.url) as connected:
        yield connected


@pytest.fixture
async def box(env: atoll.Environment) -> AsyncIterator[atoll.Sandbox]:
    sandbox = atoll.get_sandbox(env.Sandbox, f"g-{os.urandom(4).hex()}")
    yield sandbox
    await sandbox.destroy()


def run_dir(engines: Engines) -> Path:
    """Of the one sandbox that runs."""
    (found,) = (engines.state_dir / "run").glob("*/container")
    return found


async def test_commands_run_on_a_kernel_of_their_own(
    env: atoll.Environment, box: atoll.Sandbox
) -> None:
    told = await box.exec("uname -r; id -u; hostname; cat; (exit 3)", stdin=b"fed")
    release, uid, hostname, fed = told.stdout.split("\n")
    assert release != os.uname().release
    assert (uid, hostname, fed, told.exit_code) == ("0", box.id, "fed", 3)
    info = await box.info()
    assert (info.isolation, info.runtime) == ("gvisor", "runsc")
    (listed,) = await env.Sandbox.list()
    assert listed.isolation == (await box.metrics()).isolation == "gvisor"


async def test_files_survive_sleep_and_belong_to_whom_the_image_says(box: atoll.Sandbox) -> None:
    await box.write_file("/workspace/file", "content")
    await box.exec("touch /tmp/kept; chown 1000:1000 /workspace/file")
    await box.sleep()
    owner = "import os; print(os.stat('/workspace/file').st_uid, os.listdir('/tmp'))"
    told = await box.exec(["python3", "-c", owner])
    assert told.stdout.split()[0] == "1000"
    assert "kept" in told.stdout
    assert (await box.read_file("/workspace/file")).content == "content"


async def test_what_handles_files_is_within_the_limit_of_processors(env: atoll.Environment) -> None:
    """gVisor's file process is another than its kernel, and works for the sandbox all the same."""
    size = atoll.CustomInstance(vcpu=0.5, memory_mib=256, disk_mb=100)
    box = atoll.get_sandbox(env.Sandbox, "writers", instance_type=size)
    try:
        await box.exec("true")
        before, begun = (await box.metrics()).cpu_time, time.monotonic()
        await box.exec(WRITERS, check=True)
        used = (await box.metrics()).cpu_time - before
        assert 0.2 < used / (time.monotonic() - begun) < 0.65
    finally:
        await box.destroy()


async def test_a_process_logs_serves_and_outlives_its_engine(engines: Engines) -> None:
    name = f"g-{os.urandom(4).hex()}"
    async with atoll.connect(engines.url) as env:
        box = atoll.get_sandbox(env.Sandbox, name)
        server = await box.start_process(SERVER, process_id="web")
        await server.wait_for_port(8000, timeout=30)
    await asyncio.to_thread(engines.replace)
    async with atoll.connect(engines.url) as env:
        box = atoll.get_sandbox(env.Sandbox, name)
        found = await box.get_process("web")
        assert found is not None
        assert found.status == "running"
        await found.wait_for_port(8000, timeout=30)
        assert (await found.get_logs()).stderr.count("GET /") >= 2
        await found.kill()
        assert "GET /" in (await found.get_logs()).stderr
        await box.destroy()


async def test_code_runs_and_a_timeout_ends_what_it_should(box: atoll.Sandbox) -> None:
    assert (await box.run_code("21 * 2")).results[0].text == "42"
    with pytest.raises(atoll.TimeoutError):
        await box.exec("sleep 600 & sleep 600", timeout=0.5)
    assert (await box.exec("pgrep -c sleep")).stdout == "0\n"


async def test_what_a_session_leaves_behind_ends_with_it(box: atoll.Sandbox) -> None:
    """gVisor knows no subreapers: its orphans are the agent's, not their command's."""
    session = await box.create_session(id="s")
    await session.exec("sleep 614 & (sleep 615 &)")
    assert (await box.exec(["pgrep", "-c", "sleep"])).stdout == "2\n"
    await box.delete_session("s")
    assert (await box.exec(["pgrep", "-c", "sleep"])).stdout == "0\n"
    with pytest.raises(atoll.NotSupportedByRuntimeError):
        await box.create_session(id="i", isolation=True)


async def test_memory_files_of_the_agent_are_for_root_inside_only(box: atoll.Sandbox) -> None:
    """gVisor's /proc asks for no right to trace, so what they are open to is their mode's."""
    session = await box.create_session(id="s")
    await session.exec("export KEPT=here")
    command = ["python3", "-c", OPENED]
    assert "memfd" in (await box.exec(command, user="0:0")).stdout
    told = await box.exec(command, user="1000:1000")
    assert (told.stdout, told.stderr) == ("", "")
    assert (await session.exec("echo $KEPT")).stdout == "here\n"


async def test_a_user_has_a_session_whose_script_no_other_user_can_open(
    box: atoll.Sandbox,
) -> None:
    session = await box.create_session(id="s", user="1000:1000")
    await session.exec("export KEPT=here; cd /tmp")
    assert (await session.exec("echo $KEPT; pwd; id -u")).stdout == "here\n/tmp\n1000\n"
    waiting = asyncio.create_task(session.exec("sleep 5; echo $KEPT"))
    await asyncio.sleep(1)
    told = await box.exec(["python3", "-c", OPENED], user="1001:1001")
    assert (told.stdout, told.stderr) == ("", "")
    assert (await waiting).stdout == "here\n"


async def test_the_agent_answers_root_of_the_host_with_the_token_only(
    engines: Engines, box: atoll.Sandbox
) -> None:
    await box.exec("true")
    address = (run_dir(engines) / "address").read_text()
    with socket.create_connection((address, AGENT_PORT), timeout=5) as stranger:
        stranger.sendall(b'\x01\x00\x00\x00\x0e{"op":"hello"}')
        answer = b"".join(iter(lambda: stranger.recv(4096), b""))
    assert b"UNAUTHORIZED" in answer
    assert b"generation" not in answer
    asking = f"import socket; socket.create_connection(('{address}', {AGENT_PORT}), 5)"
    nobody = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-c", asking],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "refused" in nobody.stderr or "reset" in nobody.stderr, nobody.stderr


async def test_a_sandbox_that_dies_is_noticed_and_starts_again(
    engines: Engines, box: atoll.Sandbox
) -> None:
    await box.exec("true")
    waiting = asyncio.create_task(box.exec(["sleep", "600"]))
    os.kill(int((run_dir(engines) / "pid").read_text()), signal.SIGKILL)
    with pytest.raises(atoll.SandboxError):
        await asyncio.wait_for(waiting, 20)
    assert (await box.exec("echo again")).stdout == "again\n"


async def test_commands_beyond_what_the_sandbox_has_room_for_are_refused_and_nothing_ends(
    narrow: Engines,
) -> None:
    """Without the bound the sandbox ends: gVisor panics when the host gives it no thread."""
    async with atoll.connect(narrow.url) as env:
        box = atoll.get_sandbox(env.Sandbox, "narrow")
        await box.exec("true")
        waiting = [asyncio.create_task(box.exec(["sleep", "600"])) for _ in range(24)]
        await asyncio.sleep(15)
        ended = [task.exception() for task in waiting if task.done()]
        assert len(ended) == 14
        assert all(isinstance(one, atoll.ResourceBusyError) for one in ended), ended
        for task in waiting:
            task.cancel()
        assert (await box.info()).state == "running"
