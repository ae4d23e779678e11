"""What 10,000 sandboxes that sleep cost an engine: its start, a look at one, a page of the list."""

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import atoll
from atoll.engine.store.record import InForce, Record
from atoll.engine.store.store import Store
from atoll.wire.sandbox import Limits, State
from bench.table import Report, Row, Samples, timed

FEW, MANY = 10, 10_000

_NOW = datetime.now(UTC)


def sleeping(number: int) -> Record:
    """Return the record of a sandbox that ran once."""
    return Record(
        namespace="Sandbox",
        id=f"many-{number:05}",
        state=State.STOPPED,
        layer_id=f"layer-{number:05}",
        created_at=_NOW,
        started_at=_NOW,
        last_activity_at=_NOW,
        in_force=InForce(
            image="atoll/base",
            digest="sha256:0",
            instance_type="lite",
            level="container",
            runtime="runc",
            limits=Limits(memory=1 << 28, cpu=0.5, disk=2 * 10**9, pids=1_024),
        ),
    )


async def fill(state_dir: Path, count: int) -> None:
    """Store *count* sandboxes that sleep."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = await Store(state_dir / "atoll.db").open()
    await asyncio.gather(*(store.create(sleeping(number)) for number in range(count)))
    await store.close()


async def measure(report: Report, runs: int) -> None:
    """Add the rows: with many sandboxes, beside the same with few."""
    with tempfile.TemporaryDirectory(prefix="atoll-bench-many-") as folder:
        found = {count: await _measured(Path(folder), count, runs) for count in (FEW, MANY)}
    goals = {"engine start": 2.0, "get by id": 1.0, "page of a list": 1.0}
    for what, goal in goals.items():
        many, few = found[MANY][what], found[FEW][what]
        report.add(Row(f"{what}, {MANY:,} asleep", many, f"with {FEW}", few, goal))


async def _measured(folder: Path, count: int, runs: int) -> dict[str, Samples]:
    state_dir = folder / str(count)
    await fill(state_dir, count)
    starts: list[float] = []
    calls: dict[str, Samples] = {}
    for _ in range(max(3, runs // 5)):
        begin = time.perf_counter()
        async with atoll.local(state_dir=state_dir) as env:
            await env.version()
            starts.append(time.perf_counter() - begin)
            box = atoll.get_sandbox(env.Sandbox, sleeping(count // 2).id)
            steps: dict[str, Callable[[], Awaitable[object]]] = {
                "get by id": box.info,
                "page of a list": lambda: env.Sandbox.list(limit=FEW),
            }
            for what, step in steps.items():
                calls[what] = await timed(step, runs, warmup=5)
        while os.path.ismount(state_dir / "layers"):
            await asyncio.sleep(0.05)
    return {"engine start": Samples(starts), **calls}
