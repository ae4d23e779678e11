"""A host with an internet, and engines on it; all of it is gone after the test."""

import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from atoll.network.slots import NetworkSlots, Slot
from atoll.network_settings import NetworkSettings
from e2e.network import world

Engine = Callable[..., NetworkSlots]


async def direct(slots: NetworkSlots, host_ref: str) -> Slot:
    """Give *host_ref* a slot that reaches the internet."""
    slot = await slots.acquire(host_ref)
    await slots.set_mode(host_ref, "direct")
    return slot


@pytest.fixture
def folder() -> Iterator[Path]:
    if os.geteuid():
        pytest.skip("needs root")
    with tempfile.TemporaryDirectory(prefix="storage-network-") as path:
        yield Path(path)


@pytest.fixture
def internet(folder: Path) -> Iterator[Path]:
    with world.world(folder) as path:
        yield path


@pytest.fixture
async def engine(folder: Path, internet: Path) -> AsyncIterator[Engine]:
    """Makes engines' slots by engine id, opened by the test and closed after it."""
    async with AsyncExitStack() as stack:

        def make(engine_id: str = "one", **settings: object) -> NetworkSlots:
            chosen = NetworkSettings(
                **{"nameservers": (world.RESOLVER,), "prepared": 0} | settings  # type: ignore[arg-type]
            )
            slots = NetworkSlots(chosen, engine_id, base=folder / "netns")
            stack.push_async_callback(slots.close)
            stack.push_async_callback(slots.adopt, ())
            return slots

        yield make


@pytest.fixture
async def slots(engine: Engine) -> NetworkSlots:
    opened = engine()
    await opened.open()
    return opened
