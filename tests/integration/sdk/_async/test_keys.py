import json

import pytest

import atoll
from atoll import errors
from integration.sdk.engine_double import Answer, EngineDouble

INFO = {"id": "k1", "name": "ci", "scope": "read", "createdAt": "2026-01-01T00:00:00Z"}


async def test_a_key_is_asked_for_as_the_caller_says(
    engine: EngineDouble, env: atoll.Environment
) -> None:
    made = json.dumps({"key": "atoll_x", "info": INFO}).encode()
    engine.script("POST /keys", Answer(made))
    found = await env.keys.create("ci", scope="read", namespace="N", expires_in="1h")
    assert (found.key, found.info.id) == ("atoll_x", "k1")
    [seen] = engine.seen
    assert json.loads(seen.body) == {
        "name": "ci", "scope": "read", "namespace": "N", "expiresIn": 3_600_000,
    }  # fmt: skip


async def test_mistakes_cost_no_request(engine: EngineDouble, env: atoll.Environment) -> None:
    for wrong in ({"scope": "root"}, {"namespace": "../x"}, {"expires_in": "soon"}, {"rate": -1}):
        with pytest.raises(errors.ValidationFailedError):
            await env.keys.create("ci", **wrong)
    assert engine.seen == []


async def test_a_key_is_revoked_by_its_id(engine: EngineDouble, env: atoll.Environment) -> None:
    engine.script("DELETE /keys/k1", Answer(b'{"success":true}'))
    await env.keys.revoke("k1")
    assert engine.seen[0].path.endswith("/keys/k1")
