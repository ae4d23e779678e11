"""Engines, namespaces, and sandboxes that cost nothing until they are used."""

import pytest

import atoll
from atoll import errors
from atoll.workers import Request
from integration.sdk.engine_double import Answer, EngineDouble


async def test_namespaces_are_attributes_with_a_capital_letter(env: atoll.Environment) -> None:
    assert env.Sandbox.name == "Sandbox"
    assert env.namespace("other-one").name == "other-one"
    with pytest.raises(AttributeError):
        _ = env.conect
    with pytest.raises(errors.ValidationFailedError):
        env.namespace("a/b")


async def test_getting_a_sandbox_sends_nothing_and_checks_everything(
    engine: EngineDouble, env: atoll.Environment
) -> None:
    assert atoll.get_sandbox(env.Sandbox, "My.Box", normalize_id=True).id == "my.box"
    with pytest.raises(errors.InvalidSandboxIdError):
        atoll.get_sandbox(env.Sandbox, "-x")
    with pytest.raises(errors.ValidationFailedError):
        atoll.get_sandbox(env.Sandbox, "x", sleep_after="soon")
    for wrong in ("Sandbox", atoll.sync.connect(engine.url).Sandbox, None):
        with pytest.raises(errors.ValidationFailedError, match="namespace"):
            atoll.get_sandbox(wrong, "x")  # type: ignore[arg-type]
    assert engine.seen == []


async def test_a_list_is_asked_for_with_its_filters(
    engine: EngineDouble, env: atoll.Environment
) -> None:
    engine.script("GET /sandboxes", Answer(b'{"sandboxes": [], "cursor": "c2"}'))
    with pytest.raises(errors.ValidationFailedError, match="labels"):
        await env.Sandbox.list(labels="a=1")  # type: ignore[arg-type]
    with pytest.raises(errors.ValidationFailedError, match="limit"):
        await env.Sandbox.list(limit="5")  # type: ignore[arg-type]
    page = await env.Sandbox.list(labels={"a": "1", "b": "2"}, state="running", limit=5)
    assert page.cursor == "c2"
    assert engine.seen[0].query == "labels=a%3D1%2Cb%3D2&state=running&limit=5"


async def test_the_version_is_checked(engine: EngineDouble, env: atoll.Environment) -> None:
    right = Answer(b'{"version":"1","api":2,"engineId":"e"}')
    engine.script("GET /version", right, Answer(b'{"version":"1","api":3,"engineId":"e"}'))
    assert (await env.version()).engine_id == "e"
    with pytest.raises(errors.VersionMismatchError, match="client"):
        await env.version()


async def test_names_show_where_they_belong(env: atoll.Environment) -> None:
    assert "Sandbox at unix://" in repr(env.Sandbox)
    assert repr(atoll.get_sandbox(env.Sandbox, "b")) == "<Sandbox Sandbox/b>"


async def test_what_is_no_preview_goes_on(env: atoll.Environment) -> None:
    request = Request("http://localhost:8787/")
    assert await atoll.proxy_to_sandbox(request, env) is None
