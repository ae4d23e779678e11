from collections.abc import AsyncIterator

import pytest

from atoll.engine.engine import Engine
from integration.engine.conftest import Opener, opener, world

__all__ = ["opener", "world"]


@pytest.fixture
async def engine(opener: Opener) -> AsyncIterator[Engine]:
    async with opener() as found:
        found.objects.deliveries._grace = 0.05
        yield found
