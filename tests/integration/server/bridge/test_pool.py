import httpx2

from atoll.engine.engine import Engine
from atoll.wire.pool import Prime


async def test_the_pool_is_told_of_as_the_original_does(
    client: httpx2.AsyncClient, engine: Engine
) -> None:
    stats = (await client.get("/v1/pool/stats")).json()
    assert stats == {
        "warm": 0,
        "assigned": 0,
        "total": 0,
        "config": {"warmTarget": 0, "refreshInterval": 10_000},
        "maxInstances": engine.settings.lifecycle.max_instances,
    }


async def test_the_pool_is_filled_and_emptied(client: httpx2.AsyncClient, engine: Engine) -> None:
    await engine.pool.prime(Prime(target=1))
    assert (await client.post("/v1/pool/prime")).content == b'{"ok":true}'
    stats = (await client.get("/v1/pool/stats")).json()
    assert (stats["warm"], stats["config"]["warmTarget"]) == (1, 1)
    assert (await client.post("/v1/pool/shutdown-prewarmed")).content == b'{"ok":true}'
    assert (await client.get("/v1/pool/stats")).json()["warm"] == 0
