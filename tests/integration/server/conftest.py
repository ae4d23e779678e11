from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx2
import pytest

from atoll.engine.engine import Engine
from atoll.server.main import Served
from integration.engine.conftest import engine, opener, world

__all__ = ["engine", "opener", "world"]

BOX = "/v2/namespaces/N/sandboxes/box"


@pytest.fixture
async def client(engine: Engine) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the unix socket of an engine with scripted agents."""
    async with AsyncExitStack() as stack:
        served = Served(engine, stack)
        hello = await served.listen(local=False)
        transport = httpx2.AsyncHTTPTransport(uds=hello["socket"])
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://engine", timeout=10
        ) as found:
            yield found
        await served.stop()
