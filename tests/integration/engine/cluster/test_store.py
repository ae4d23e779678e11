"""Records in objects of a cluster whose API is in memory."""

import asyncio

import pytest

from atoll.errors import ContainerUnavailableError, NotSupportedByRuntimeError
from atoll.wire.sandbox import SandboxOptions
from integration.engine.cluster.replicas import Pair, until
from objects import Objects


async def test_options_written_by_both_are_all_kept(pair: Pair) -> None:
    calls = [pair[n % 2].sandbox("n", "box").set_env({f"V{n}": str(n)}) for n in range(20)]
    await asyncio.gather(*calls)
    boxes = [engine.sandbox("n", "box") for engine in pair]
    await until(lambda: all(box.record and len(box.record.env) == 20 for box in boxes))


async def test_without_the_api_what_runs_answers_and_what_changes_is_refused(
    pair: Pair, cluster: Objects
) -> None:
    first, second = (engine.sandbox("n", "box") for engine in pair)
    await first.ensure_running()
    await second.ensure_running()
    cluster.leave()
    assert await first.ensure_running()
    assert await second.ensure_running()
    with pytest.raises(ContainerUnavailableError):
        await pair[0].sandbox("n", "other").ensure_running()
    with pytest.raises(ContainerUnavailableError):
        await first.configure(SandboxOptions(env={"A": "1"}))
    cluster.away = False
    await pair[0].sandbox("n", "other").ensure_running()


async def test_what_is_gone_for_one_is_gone_for_all_also_its_tombstone(pair: Pair) -> None:
    first, second = pair
    await first.sandbox("n", "box").configure(SandboxOptions())
    await first.sandbox("n", "box").destroy()
    assert await second.store.forget_tombstones(1e12) == 1
    await until(lambda: not first.store._copy.read("SELECT 1 FROM sandboxes", ()))  # type: ignore[attr-defined]
    await first.sandbox("n", "box").configure(SandboxOptions())
    await until(lambda: second.store._copy.read("SELECT 1 FROM sandboxes", ()))  # type: ignore[attr-defined]


async def test_a_write_of_what_replicas_cannot_share_is_refused_and_leaves_nothing(
    pair: Pair, cluster: Objects
) -> None:
    before = cluster.kinds()
    with pytest.raises(NotSupportedByRuntimeError):
        await pair[0].store.execute("INSERT INTO warm VALUES (?, ?, ?)", ("r", "l", b"{}"))
    assert await pair[0].store.read("SELECT 1 FROM warm", ()) == []
    assert cluster.kinds() == before


async def test_writes_that_others_outpace_are_decided_anew(pair: Pair) -> None:
    """Each sees what is there when it is stored: none of them is lost."""

    async def count(store: object) -> None:
        def add(connection: object) -> None:
            rows = connection.execute("SELECT value FROM meta WHERE name = 'n'").fetchall()  # type: ignore[attr-defined]
            value = int(rows[0][0]) + 1 if rows else 1
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('n', ?)", (str(value),))  # type: ignore[attr-defined]

        await store.write(add)  # type: ignore[attr-defined]

    await asyncio.gather(*(count(pair[n % 2].store) for n in range(40)))
    for engine in pair:
        await until(
            lambda engine=engine: (
                engine.store._copy.read(  # type: ignore[misc]
                    "SELECT value FROM meta WHERE name = 'n'", ()
                )
                == [("40",)]
            )
        )
