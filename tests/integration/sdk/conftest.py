"""Fixtures: an engine that follows a script, and a sandbox at it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import atoll
from integration.sdk.engine_double import EngineDouble


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EngineDouble]:
    with EngineDouble(tmp_path / "e.sock").serving() as double:
        yield double


@pytest.fixture
async def env(engine: EngineDouble) -> AsyncIterator[atoll.Environment]:
    async with atoll.connect(engine.url) as environment:
        yield environment


@pytest.fixture
def sandbox(env: atoll.Environment) -> atoll.Sandbox:
    return atoll.get_sandbox(env.Sandbox, "box")


@pytest.fixture
def blocking(engine: EngineDouble) -> Iterator["atoll.sync.Sandbox"]:
    with atoll.sync.connect(engine.url) as environment:
        yield atoll.sync.get_sandbox(environment.Sandbox, "box")
