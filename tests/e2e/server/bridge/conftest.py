"""One engine with containers for all tests of a module, reached as a client elsewhere reaches it."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest
from agents.extensions.sandbox.cloudflare import (
    CloudflareSandboxClient,
    CloudflareSandboxClientOptions,
)
from agents.sandbox.session import SandboxSession

from integration.server.engines import EngineProcess

KEY = "a-key-of-the-bridge"


class Node:
    """One state directory and the engine on it."""

    def __init__(self) -> None:
        self.state_dir = Path(tempfile.mkdtemp(prefix="atoll-bridge-", dir="/tmp"))

    def start(self) -> EngineProcess:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SANDBOX_API_KEY", KEY)
            engine = EngineProcess(self.state_dir, "--port", "0", level="container")
        assert "url" in engine.hello, engine.log
        return engine

    def close(self, engine: EngineProcess) -> None:
        """Remove every sandbox and the engine, so that nothing stays mounted."""
        remove_all(engine)
        assert engine.end() == 0, engine.log
        shutil.rmtree(self.state_dir)


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineProcess]:
    node = Node()
    found = node.start()
    yield found
    node.close(found)


def remove_all(engine: EngineProcess) -> None:
    """Destroy every sandbox, so that nothing stays mounted."""
    with engine.client() as client:
        for info in client.get("/v2/namespaces/Sandbox/sandboxes").json()["sandboxes"]:
            client.delete(f"/v2/namespaces/Sandbox/sandboxes/{info['id']}")


@pytest.fixture
def options(
    engine: EngineProcess, monkeypatch: pytest.MonkeyPatch
) -> CloudflareSandboxClientOptions:
    monkeypatch.setenv("CLOUDFLARE_SANDBOX_API_KEY", KEY)  # a resumed session has no other way
    return CloudflareSandboxClientOptions(worker_url=engine.hello["url"], api_key=KEY)


@pytest.fixture
async def box(options: CloudflareSandboxClientOptions) -> AsyncIterator[SandboxSession]:
    """A started session of the unmodified client; its sandbox goes afterwards."""
    client = CloudflareSandboxClient()
    session = await client.create(options=options)
    try:
        await session.start()
        yield session
    finally:
        await session.aclose()  # deletes the sandbox too


@pytest.fixture
async def http(engine: EngineProcess) -> AsyncIterator[httpx2.AsyncClient]:
    """Plain HTTP to the bridge with the key."""
    headers = {"authorization": f"Bearer {KEY}"}
    async with httpx2.AsyncClient(
        base_url=engine.hello["url"] + "/v1", headers=headers, timeout=60
    ) as found:
        yield found
