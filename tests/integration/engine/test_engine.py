import asyncio
import gc
import threading

import pytest

from atoll.engine.engine import MAX_PAGE, Engine, opened
from atoll.errors import InvalidSandboxIdError, ValidationFailedError
from atoll.host import linux
from atoll.settings import RuntimeSettings, Settings, StorageSettings
from atoll.wire.sandbox import NamespaceConfig, SandboxOptions
from integration.engine.conftest import Opener
from integration.engine.scripted import World


def test_one_object_per_id_as_long_as_anybody_holds_it(engine: Engine) -> None:
    first = engine.sandbox("N", "box")
    assert engine.sandbox("N", "box") is first
    assert engine.sandbox("N", "Box") is not first
    assert engine.sandbox("M", "box") is not first
    del first
    gc.collect()
    assert len(engine._sandboxes) == 0


@pytest.mark.parametrize("id", ["../x", "", "www"])
def test_wrong_names_never_become_objects(engine: Engine, id: str) -> None:
    with pytest.raises(InvalidSandboxIdError):
        engine.sandbox("N", id)
    with pytest.raises(ValidationFailedError):
        engine.sandbox("N/../M", "box")


async def test_running_sandboxes_are_held(engine: Engine) -> None:
    await engine.sandbox("N", "box").ensure_running()
    gc.collect()
    assert list(engine._sandboxes) == [("N", "box")]


async def test_pages_have_a_limit(engine: Engine) -> None:
    for n in range(3):
        await engine.sandbox("N", f"b{n}").configure(SandboxOptions())
    page = await engine.list("N", state=None, labels={}, cursor=None, limit=MAX_PAGE + 1)
    assert len(page.sandboxes) == 3
    first = await engine.list("N", state=None, labels={}, cursor=None, limit=2)
    assert first.cursor == "b1"


async def test_info_tells_what_a_sandbox_takes_and_waits_for_no_disk(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who only looks must not hang where the host's disk does."""
    await engine.sandbox("N", "new").configure(SandboxOptions())
    assert (await engine.info("N", "new")).disk_used is None
    await engine.sandbox("N", "box").ensure_running()
    found = await engine.info("N", "box")
    assert found.disk_used is not None
    assert 0 <= found.disk_used < found.limits.disk

    async def hang(_: str) -> int:
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(engine._disk_use, "_measure", hang)
    async with asyncio.timeout(20):
        told = await asyncio.gather(*(engine.info("N", "box") for _ in range(20)))
    assert {one.disk_used for one in told} == {None}


async def test_namespaces_survive_a_restart(opener: Opener) -> None:
    async with opener() as engine:
        await engine.configure_namespace("N", NamespaceConfig(max_instances=3))
    async with opener() as engine:
        assert engine.namespaces["N"].max_instances == 3


async def test_an_engine_keeps_its_id_with_its_directory(world: World) -> None:
    settings = Settings(
        storage=StorageSettings(state_dir=world.state_dir, cache_dir=world.state_dir),
        runtime=RuntimeSettings(default="fake"),
    )
    async with opened(settings) as first:
        id = first.id
    async with opened(settings) as second:
        assert second.id == id


async def test_disk_limits_hold_for_every_thread_of_an_engine(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Capabilities belong to threads: one started earlier would write past every quota."""
    threads: list[int] = []
    monkeypatch.setattr(
        linux, "drop_sys_resource", lambda: threads.append(threading.active_count())
    )
    settings = Settings(
        storage=StorageSettings(state_dir=world.state_dir, cache_dir=world.state_dir),
        runtime=RuntimeSettings(default="fake"),
    )
    before = threading.active_count()
    async with opened(settings):
        assert threads == [before]
        assert threading.active_count() > before


async def test_a_new_engine_gives_back_the_host_ids_of_starts_that_are_gone(
    opener: Opener, world: World
) -> None:
    async with opener() as engine:
        await engine.sandbox("N", "box").ensure_running()
        world.ids.acquire("e0-lost")
        (host_ref,) = world.runtime.running
        kept = world.ids.acquire(host_ref)
    async with opener():
        assert [path.name for path in world.claims.iterdir()] == [str(kept)]
