import json

import atoll
from integration.sdk.engine_double import Answer, EngineDouble

STATS = {
    "warm": 1, "making": 0, "assigned": 0, "total": 1, "taken": 0, "missed": 0, "maxWarm": 5,
    "refreshInterval": 1000, "kinds": [],
}  # fmt: skip


async def test_the_pool_is_asked_filled_and_emptied(
    engine: EngineDouble, env: atoll.Environment
) -> None:
    answer = Answer(json.dumps(STATS).encode())
    for call in ("GET /v2/pool", "POST /v2/pool/prime", "POST /v2/pool/shutdown"):
        engine.script(call, answer)
    assert (await env.pool.stats()).refresh_interval_ms == 1_000
    assert (await env.pool.prime(target=3, instance_type="basic")).warm == 1
    await env.pool.shutdown()
    assert engine.seen[1].json() == {"target": 3, "instanceType": "basic"}
