from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.network.gateway.harness import Harness


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Harness]:
    async with Harness(tmp_path).open() as harness:
        yield harness
