import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop

from integration.network.gateway.harness import Harness


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Harness]:
    async with Harness(tmp_path).open() as harness:
        yield harness


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that the gateway runs on: it differs from asyncio's in what TLS returns."""
    return {"uvloop": uvloop.new_event_loop}
