"""Who is there before the agent is: the first by its greeting or handed on, the others in line."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.agent.client import Client, end, launch


@pytest.fixture
def folder() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="atoll-agent-"))
    yield directory
    shutil.rmtree(directory)


@pytest.mark.parametrize("first", ["hello", "operations"])
def test_everybody_who_came_early_is_answered(folder: Path, first: str) -> None:
    process = launch(folder)
    try:
        agent = Client(str(folder / "agent.sock"), process.pid, folder)
        connections = [agent.connect() for _ in range(10)]
        for number, connection in enumerate(connections):
            connection.header(op="session.list" if number else first)
        for connection in connections:
            with connection:
                assert connection.frame()
        assert agent.call("hello")["pid"]
        assert agent.exec(["echo", "on"]).stdout == b"on\n"
    finally:
        end(process)
