"""One agent per test module, on the bare host: no container, no root, no confinement."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.agent.client import Client, end, launch


@pytest.fixture(scope="module")
def agent() -> Iterator[Client]:
    directory = Path(tempfile.mkdtemp(prefix="atoll-agent-"))
    process = launch(directory)
    yield Client(str(directory / "agent.sock"), process.pid, directory)
    end(process)
    shutil.rmtree(directory)
