"""Case W01: Vite's development server by a preview, with hot module reload in a real browser."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from websockets.asyncio.client import connect

import atoll
from e2e.hosts import Host

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

APP = {
    "index.html": '<p id="out">nothing</p><script type="module" src="/main.js"></script>',
    "text.js": 'export const text = "first"',
    "main.js": """
import { text } from "./text.js"
const show = (found) => { document.querySelector("#out").textContent = found }
show(text)
import.meta.hot.accept("./text.js", (changed) => show(changed.text))
""",
}


@pytest.fixture
def host() -> Iterator[Host]:
    for tool in ("npm", "chromium"):
        if not shutil.which(tool):
            pytest.skip(f"wants {tool}")
    if os.geteuid():
        pytest.skip("needs root")
    found = Host()
    yield found
    found.close()


class Page:
    """A page of the browser, by its debugging protocol."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._ids = count(1)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        id = next(self._ids)
        await self._socket.send(json.dumps({"id": id, "method": method, "params": params}))
        while (found := json.loads(await self._socket.recv())).get("id") != id:
            pass
        assert "error" not in found, found
        result: dict[str, Any] = found["result"]
        return result

    async def value(self, expression: str) -> Any:
        found = await self.call("Runtime.evaluate", expression=expression)
        return found["result"].get("value")

    async def becomes(self, expression: str, wanted: object) -> None:
        async with asyncio.timeout(60):
            while await self.value(expression) != wanted:
                await asyncio.sleep(0.05)


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Page]:
    argv = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-dev-shm-usage", "--no-proxy-server", f"--user-data-dir={folder}",
            "--remote-debugging-port=0", "about:blank"]  # fmt: skip
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        told = folder / "DevToolsActivePort"
        async with asyncio.timeout(60):
            while not told.exists() or len(told.read_text().splitlines()) < 2:
                await asyncio.sleep(0.05)
        port = told.read_text().splitlines()[0]
        pages = json.loads(
            await asyncio.to_thread(lambda: urlopen(f"http://127.0.0.1:{port}/json").read())
        )
        target = next(page for page in pages if page["type"] == "page")
        async with connect(target["webSocketDebuggerUrl"], max_size=None) as socket:
            yield Page(socket)
    finally:
        process.terminate()
        process.wait(timeout=30)


async def test_w01_an_edit_in_the_sandbox_changes_the_page_without_a_reload(
    host: Host, tmp_path: Path
) -> None:
    app = tmp_path / "app"
    app.mkdir()
    install = ["npm", "install", "--no-fund", "--no-audit", "--ignore-scripts", "vite@6"]
    await asyncio.to_thread(subprocess.run, install, cwd=app, check=True, capture_output=True)
    for name, text in APP.items():
        (app / name).write_text(text)
    engine = await asyncio.to_thread(host.start, "--port", "0")
    port = engine.hello["url"].rpartition(":")[2]
    async with atoll.connect(f"unix://{engine.hello['socket']}") as env:
        sandbox = atoll.get_sandbox(env.Sandbox, "vite", instance_type="standard-1")
        await sandbox.upload(app, "/workspace/app")
        vite = await sandbox.start_process(
            ["node", "node_modules/vite/bin/vite.js", "--port", "5173", "--strictPort"],
            cwd="/workspace/app",
        )  # its default: "localhost", which is ::1 where there is IPv6
        await vite.wait_for_port(5173, timeout=60)
        exposed = await sandbox.expose_port(5173, hostname=f"localhost:{port}")
        async with browser(tmp_path / "profile") as page:
            await page.call("Page.navigate", url=exposed.url)
            await page.becomes("document.querySelector('#out')?.textContent", "first")
            await page.value("window.mark = 'same page'")
            for text in ("second", "third"):
                await sandbox.write_file("/workspace/app/text.js", f'export const text = "{text}"')
                await page.becomes("document.querySelector('#out').textContent", text)
            assert await page.value("window.mark") == "same page"
        await sandbox.destroy()
