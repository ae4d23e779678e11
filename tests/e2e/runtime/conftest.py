"""A driver with real containers, for each test one with its own state directory."""

import os
from collections.abc import AsyncIterator

import pytest

from e2e.runtime.boxes import Bench, Box, open_bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    if os.geteuid():
        pytest.skip("needs root")
    opened = await open_bench()
    yield opened
    await opened.close()


@pytest.fixture
async def box(bench: Bench) -> AsyncIterator[Box]:
    async with bench.running() as running:
        yield running
