"""What is sent for each change of a policy; the log goes on where it was lost."""

from typing import cast

import pytest

import atoll
from atoll.wire import frames
from atoll.wire.frames import Kind
from integration.sdk.engine_double import Answer, EngineDouble

CHANGE, LOG = "POST /network", "GET /network/log"
POLICY = b'{"mode": "gateway", "enableInternet": true, "allowedHosts": ["a.test"]}'
END = frames.encode_json(Kind.END, {})


def event(cursor: str, host: str) -> bytes:
    plain = {"cursor": cursor, "time": 1.5, "protocol": "dns", "verdict": "refused", "rule": "r"}
    return frames.encode_json(Kind.EVENT, plain | {"host": host})


async def test_each_call_changes_one_thing(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    engine.script(CHANGE, *(Answer(POLICY) for _ in range(14)))
    assert (await sandbox.set_allowed_hosts(("a.test",))).allowed_hosts == ["a.test"]
    await sandbox.set_allowed_hosts(None)
    await sandbox.set_denied_hosts([])
    await sandbox.allow_host("a.test")
    await sandbox.remove_allowed_host("a.test")
    await sandbox.deny_host("a.test")
    await sandbox.remove_denied_host("a.test")
    await sandbox.set_outbound_handler("h", {"p": 1})
    await sandbox.set_outbound_handler(None)
    await sandbox.set_outbound_by_host("a.test", "h")
    await sandbox.set_outbound_by_hosts({"a.test": "h", "b.test": {"name": "h", "params": 2}})
    await sandbox.remove_outbound_by_host("a.test")
    assert [seen.json() for seen in engine.seen] == [
        {"allowedHosts": ["a.test"]},
        {"allowedHosts": None},
        {"deniedHosts": []},
        {"allow": ["a.test"]},
        {"disallow": ["a.test"]},
        {"deny": ["a.test"]},
        {"undeny": ["a.test"]},
        {"outbound": {"name": "h", "params": {"p": 1}}},
        {"outbound": None},
        {"handle": {"a.test": {"name": "h"}}},
        {"outboundByHost": {"a.test": {"name": "h"}, "b.test": {"name": "h", "params": 2}}},
        {"unhandle": ["a.test"]},
    ]


async def test_one_text_is_no_list_of_hosts(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    """It would be a list of its letters."""
    for wrong in ("a.test", b"a.test", {"a.test": 1}, [1]):
        with pytest.raises(atoll.ValidationFailedError, match="list of texts"):
            await sandbox.set_allowed_hosts(cast("list[str]", wrong))
    with pytest.raises(atoll.SandboxError, match="name"):
        await sandbox.set_outbound_by_hosts({"a.test": {"params": 1}})
    assert not engine.seen


async def test_the_policy_is_read(engine: EngineDouble, sandbox: atoll.Sandbox) -> None:
    engine.script("GET /network", Answer(POLICY))
    assert (await sandbox.network_policy()).mode == "gateway"


async def test_a_lost_log_is_resumed_behind_its_last_event(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    first, second = event("g1-10", "a.test"), event("g1-20", "b.test")
    engine.script(LOG, Answer(first + second, cut=len(first) + 3), Answer(second + END))
    assert [e.host async for e in sandbox.network_log(follow=True)] == ["a.test", "b.test"]
    assert "after=g1-10" in engine.seen[1].query
