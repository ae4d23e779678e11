import json

import pytest

import atoll
from atoll.errors import ValidationFailedError
from integration.sdk.engine_double import Answer, EngineDouble

INFO = {"name": "KEY", "hosts": ["a.test"], "updatedAt": "2026-01-01T00:00:00Z"}


async def test_a_value_is_sent_once_and_names_come_back(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    put, delete, listing = (
        "PUT /v2/namespaces/Sandbox/secrets/KEY",
        "DELETE /v2/namespaces/Sandbox/secrets/KEY",
        "GET /v2/namespaces/Sandbox/secrets",
    )
    engine.script(put, Answer(json.dumps(INFO).encode()))
    engine.script(listing, Answer(json.dumps({"secrets": [INFO]}).encode()))
    engine.script(delete, Answer(b"{}"))
    async with atoll.connect(engine.url) as env:
        secrets = env.Sandbox.secrets
        kept = await secrets.put("KEY", "the-value", hosts=["a.test"])
        assert (kept.name, kept.hosts) == ("KEY", ["a.test"])
        assert await secrets.list() == [kept]
        await secrets.delete("KEY")
    assert engine.seen[0].json() == {"value": "the-value", "hosts": ["a.test"]}


async def test_a_value_that_cannot_be_one_is_not_in_the_error(engine: EngineDouble) -> None:
    async with atoll.connect(engine.url) as env:
        with pytest.raises(ValidationFailedError) as caught:
            await env.Sandbox.secrets.put("KEY", "v" * 70_000)
    assert "vvv" not in str(caught.value)
