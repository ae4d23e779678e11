"""A kernel that Jupyter starts by the provisioner runs in a sandbox (fake runtime)."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import AsyncKernelManager

import atoll
from atoll.jupyter.provisioner import SandboxProvisioner

ANSWER = 40.0


@pytest.fixture
async def kernel(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Any, str]]:
    """A client of a started kernel, and the id of its sandbox."""
    id = f"jup-{uuid.uuid4().hex[:8]}"
    folder = tmp_path / "kernels" / "sandboxed"
    folder.mkdir(parents=True)
    provisioner = {"provisioner_name": "atoll", "config": {"sandbox": id}}
    spec = {
        "display_name": "Sandbox", "language": "python", "argv": [],
        "interrupt_mode": "message", "metadata": {"kernel_provisioner": provisioner},
    }  # fmt: skip
    (folder / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("ATOLL_URL", engine)
    manager = AsyncKernelManager(kernel_name="sandboxed")
    await manager.start_kernel()
    assert isinstance(manager.provisioner, SandboxProvisioner)
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=ANSWER)
        yield (manager, client), id
    finally:
        client.stop_channels()
        await manager.shutdown_kernel()
        async with atoll.connect(engine) as env:
            await atoll.get_sandbox(env.Sandbox, id).destroy()


async def _run(client: Any, code: str) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    shown: list[tuple[str, dict[str, Any]]] = []
    reply = await client.execute_interactive(
        code,
        timeout=ANSWER,
        output_hook=lambda message: shown.append((message["msg_type"], message["content"])),
    )
    return reply["content"], shown


@pytest.mark.filterwarnings("ignore")  # of pyzmq's and tornado's own making
async def test_cells_run_in_the_sandbox_and_can_be_interrupted(
    kernel: tuple[Any, str], engine: str
) -> None:
    (manager, client), id = kernel
    reply, shown = await _run(client, "import os\nopen('made', 'w').close()\nprint('hi')\n6 * 7")
    assert reply["status"] == "ok"
    assert "".join(content["text"] for kind, content in shown if kind == "stream") == "hi\n"
    result = next(content for kind, content in shown if kind == "execute_result")
    assert result["data"]["text/plain"] == "42"
    async with atoll.connect(engine) as env:
        assert await atoll.get_sandbox(env.Sandbox, id).exists("made")
    reply, shown = await _run(client, "1/0")
    assert reply["ename"] == "ZeroDivisionError"
    endless = asyncio.create_task(
        _run(client, "print('go')\nimport time\nwhile True: time.sleep(0.1)")
    )
    await asyncio.sleep(1)
    while not endless.done():
        await manager.interrupt_kernel()
        await asyncio.wait({endless}, timeout=1)
    assert (await endless)[0]["ename"] == "KeyboardInterrupt"
