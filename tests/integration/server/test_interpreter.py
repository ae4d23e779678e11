"""The engine is killed while code runs, and the next one finds the run where it is."""

import asyncio
import signal
from pathlib import Path

import atoll
from integration.server.engines import EngineProcess


async def test_a_run_goes_on_while_the_engine_is_killed(tmp_path: Path) -> None:
    engine = EngineProcess(tmp_path / "state")
    try:
        async with atoll.connect(f"unix://{engine.hello['socket']}") as env:
            box = atoll.get_sandbox(env.Sandbox, "code")
            context = await box.create_code_context()
            printed = asyncio.Event()
            code = "import time\nfor n in range(20):\n    print(n)\n    time.sleep(0.1)\n'done'"
            run = asyncio.create_task(context.run_code(code, on_stdout=lambda _: printed.set()))
            await printed.wait()
            engine.end(signal.SIGKILL)
            engine = EngineProcess(tmp_path / "state")
            result = await run
            assert result.text == "'done'"
            assert "".join(result.logs.stdout).split() == [str(n) for n in range(20)]
            assert (await context.run_code("n")).text == "19"
            await box.destroy()
    finally:
        engine.end()
