"""One engine of level gvisor for the tests of this folder."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.server.engines import EngineProcess


class Engines:
    """Engines on one state directory, one after the other."""

    def __init__(self, **settings: str) -> None:
        self._settings = settings
        self.state_dir = Path(tempfile.mkdtemp(prefix="atoll-gvisor-", dir="/tmp"))
        self.start()

    def start(self) -> None:
        self.now = EngineProcess(self.state_dir, level="gvisor", settings=self._settings)
        assert "error" not in self.now.hello, self.now.hello
        self.url = f"unix://{self.now.hello['socket']}"

    def replace(self) -> None:
        self.now.end(signal.SIGKILL)
        self.start()

    def close(self) -> None:
        with self.now.client() as client:
            for info in client.get("/v2/namespaces/Sandbox/sandboxes").json()["sandboxes"]:
                client.delete(f"/v2/namespaces/Sandbox/sandboxes/{info['id']}")
        assert list((self.state_dir / "gvisor" / "containers").iterdir()) == []
        assert self.now.end() == 0
        shutil.rmtree(self.state_dir)


@pytest.fixture(scope="module")
def runsc() -> None:
    if os.geteuid():
        pytest.skip("needs root")
    if shutil.which("runsc") is None:
        pytest.skip("runsc is not installed")


@pytest.fixture(scope="module")
def engines(runsc: None) -> Iterator[Engines]:
    found = Engines()
    yield found
    found.close()


@pytest.fixture
def narrow(runsc: None) -> Iterator[Engines]:
    """With 448 threads of the host for each sandbox: ten commands."""
    found = Engines(ATOLL_RUNTIME_PIDS="124", ATOLL_RUNTIME_AGENT_PIDS="100")
    yield found
    found.close()
