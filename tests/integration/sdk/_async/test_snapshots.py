import json
from typing import Any

import pytest

import atoll
from atoll import errors
from integration.sdk.engine_double import Answer, EngineDouble

TAKEN = {
    "id": "s1", "namespace": "Sandbox", "sandbox": "box", "createdAt": "2026-01-01T00:00:00Z",
}  # fmt: skip


def answer(body: Any) -> Answer:
    return Answer(json.dumps(body).encode())


async def test_a_snapshot_is_asked_for_with_its_name_labels_and_end(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("POST /snapshots", answer(TAKEN))
    taken = await sandbox.snapshot("first", labels={"a": "b"}, ttl="1h")
    assert taken.id == "s1"
    assert engine.seen[0].json() == {"name": "first", "labels": {"a": "b"}, "ttl": 3_600_000}
    assert "idempotency-key" in engine.seen[0].headers


async def test_forks_are_sandboxes_and_tell_what_failed(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    error = errors.SandboxAlreadyExistsError("there is one").to_wire()
    forks = [{"id": "f-1"}, {"id": "f-2", "error": error}]
    engine.script("POST /fork", answer({"forks": forks}))
    made = await sandbox.fork("f", count=2, from_snapshot="s1")
    assert engine.seen[0].json() == {"id": "f", "count": 2, "fromSnapshot": "s1"}
    assert [(type(fork), fork.id, fork.namespace) for fork in made] == [
        (atoll.Sandbox, "f-1", "Sandbox")
    ]
    assert isinstance(made.errors["f-2"], errors.SandboxAlreadyExistsError)


async def test_when_none_could_be_made_the_reason_is_raised(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    error = errors.SandboxAlreadyExistsError("there is one").to_wire()
    engine.script("POST /fork", answer({"forks": [{"id": "f", "error": error}]}))
    with pytest.raises(errors.SandboxAlreadyExistsError):
        await sandbox.fork("f")


async def test_a_snapshot_is_given_as_it_is_or_by_its_id(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    diff = {"changes": [{"path": "/f", "kind": "created", "type": "file", "size": 1}]}
    engine.script("POST /snapshots", answer(TAKEN))
    engine.script("GET /diff", answer(diff))
    taken = await sandbox.snapshot()
    for since in (taken, "s1"):
        assert [change.path for change in await sandbox.diff(since)] == ["/f"]
    assert {request.query for request in engine.seen[1:]} == {"since=s1"}


async def test_a_patch_is_asked_for_as_the_comparison_was(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("GET /diff", answer({"changes": [], "truncated": True}))
    engine.script("GET /diff/patch", Answer(b"--- a/f\n"))
    diff = await sandbox.diff("s1")
    assert (len(diff), [*diff], diff.truncated) == (0, [], True)
    assert repr(diff) == "<Diff of 0 changes, truncated>"
    assert await diff.patch() == b"--- a/f\n"
    assert engine.seen[-1].query == "since=s1"


async def test_a_snapshot_leaves_and_comes_back(
    engine: EngineDouble, env: atoll.Environment
) -> None:
    engine.script("GET /snapshots/s1/export", Answer(b"file"))
    engine.script("POST /snapshots", answer(TAKEN))
    pieces = [piece async for piece in env.Sandbox.export_snapshot("s1")]
    for content in (b"".join(pieces), iter(pieces)):
        assert (await env.Sandbox.import_snapshot(content)).id == "s1"
        assert engine.seen[-1].body == b"file"


async def test_a_snapshot_before_a_command_is_taken_first(
    engine: EngineDouble, sandbox: atoll.Sandbox
) -> None:
    engine.script("POST /snapshots", answer(TAKEN))
    with pytest.raises(errors.SandboxError) as caught:
        await sandbox.exec(["echo", "a\nb"], snapshot_before=True)
    assert engine.seen[0].json() == {"name": "before: echo a b"}
    assert caught.value.context["snapshot"] == "s1", "also of a command that could not run"
    assert "/exec" in engine.seen[1].path
