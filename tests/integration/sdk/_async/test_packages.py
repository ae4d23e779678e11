import json
from typing import Any

import pytest

import atoll
from atoll import errors
from integration.sdk.engine_double import Answer, EngineDouble, command, failing

CACHE = {
    "name": "c", "namespace": "Sandbox", "size": 1, "createdAt": "2026-01-01T00:00:00Z",
    "private": True,
}  # fmt: skip
INFO = {
    "id": "fill-0", "namespace": "Sandbox", "state": "created", "generation": 0, "image": "i",
    "instanceType": "lite", "isolation": "fake", "runtime": "", "wanted": {}, "success": True,
    "limits": {"memory": 1, "cpu": 1, "disk": 1, "pids": 1}, "createdAt": "2026-01-01T00:00:00Z",
}  # fmt: skip
MISSING = failing(errors.VolumeNotFoundError("no volume"))


def answer(body: Any) -> Answer:
    return Answer(json.dumps(body).encode())


@pytest.fixture
def filling(engine: EngineDouble, monkeypatch: pytest.MonkeyPatch) -> EngineDouble:
    """An engine on which every step of a fill works."""
    monkeypatch.setattr("secrets.token_hex", lambda _count: "0")
    for method in ("PUT", "DELETE"):
        engine.script(f"{method} /sandboxes/fill-0", answer(INFO))
    engine.script("GET /volumes/c", answer(CACHE))
    engine.script("POST /volumes", answer(CACHE))
    engine.script("POST /exec", command())
    engine.script("POST /publish", answer(CACHE))
    engine.script("POST /folders", answer({"success": True}))
    return engine


def calls(engine: EngineDouble) -> list[tuple[str, str]]:
    return [(seen.method, seen.path.rsplit("/", 1)[1]) for seen in engine.seen]


async def test_a_fill_downloads_in_a_fresh_sandbox_publishes_and_destroys_it(
    filling: EngineDouble, env: atoll.Environment
) -> None:
    told = await env.package_caches.fill("c", pip=["a==1"], npm=["b@2"])
    assert told.private
    _, ensured, pip, npm, published, destroyed = filling.seen
    box = ensured.path.rsplit("/", 1)[1]
    assert ensured.json() == {"packageCache": "c"}
    assert published.json() == {"sandbox": box}
    assert (destroyed.method, destroyed.path) == ("DELETE", ensured.path)
    assert (b"--only-binary" in pip.body, b"a==1" in pip.body) == (True, True)
    assert (b"--ignore-scripts" in npm.body, b"b@2" in npm.body) == (True, True)


async def test_a_cache_that_is_missing_is_made_private(
    filling: EngineDouble, env: atoll.Environment
) -> None:
    filling.script("GET /volumes/c", MISSING)
    await env.package_caches.fill("c", uv=["a"], size="1GB")
    assert filling.seen[1].json() == {"name": "c", "size": 1_000_000_000, "private": True}


async def test_without_packages_there_only_is_a_cache_afterwards(
    filling: EngineDouble, env: atoll.Environment
) -> None:
    assert (await env.package_caches.fill("c")).name == "c"
    assert {method for method, _ in calls(filling)} == {"GET"}


async def test_what_cannot_be_downloaded_publishes_nothing(
    filling: EngineDouble, env: atoll.Environment
) -> None:
    filling.script("POST /exec", command(exit_code=1))
    with pytest.raises(errors.CommandFailedError):
        await env.package_caches.fill("c", pip=["a"])
    assert [method for method, what in calls(filling) if what == "publish"] == []
    assert filling.seen[-1].method == "DELETE"


async def test_one_text_is_no_list_of_packages(
    engine: EngineDouble, env: atoll.Environment
) -> None:
    """It would be taken for a list of packages with names of one letter."""
    with pytest.raises(errors.ValidationFailedError):
        await env.package_caches.fill("c", pip="requests")
    assert engine.seen == []
