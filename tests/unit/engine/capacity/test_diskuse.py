import asyncio

import pytest

from atoll.engine.capacity import diskuse
from atoll.engine.capacity.diskuse import DiskUse
from atoll.errors import NotSupportedByRuntimeError


class Store:
    def __init__(self) -> None:
        self.asked = 0
        self.free = asyncio.Event()
        self.error: Exception | None = None

    async def usage(self, layer_id: str) -> int:
        self.asked += 1
        await self.free.wait()
        if self.error:
            raise self.error
        return len(layer_id)


async def test_a_busy_store_keeps_nobody_waiting_and_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(diskuse, "PATIENCE", 0.01)
    store = Store()
    use = DiskUse(store.usage)
    assert await asyncio.gather(*(use.of("layer") for _ in range(50))) == [None] * 50
    assert await use.of("layer") is None
    assert store.asked == 1
    store.free.set()
    await asyncio.sleep(0.02)
    monkeypatch.setattr(diskuse, "PATIENCE", 30)
    assert await use.of("layer") == 5
    assert store.asked == 2


@pytest.mark.parametrize("error", [FileNotFoundError(), NotSupportedByRuntimeError("none")])
async def test_what_is_not_there_has_no_figure(error: Exception) -> None:
    store = Store()
    store.error = error
    store.free.set()
    assert await DiskUse(store.usage).of("layer") is None
