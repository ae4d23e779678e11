"""An engine with 10,000 sandboxes that sleep serves as one with ten."""

import asyncio
import signal
import time
from pathlib import Path

import httpx2
import pytest
from bench import many

from integration.server.engines import EngineProcess

LIST = "/v2/namespaces/Sandbox/sandboxes"


def started(state_dir: Path, count: int) -> tuple[EngineProcess, float]:
    asyncio.run(many.fill(state_dir, count))
    for number in range(count):
        (state_dir / "layers" / many.sleeping(number).layer_id).mkdir(parents=True)
    begin = time.perf_counter()
    engine = EngineProcess(state_dir)
    return engine, time.perf_counter() - begin


def pages(client: httpx2.Client) -> list[str]:
    found, cursor = list[str](), ""
    while cursor is not None:
        query = {"limit": 1_000} | ({"cursor": cursor} if cursor else {})
        page = client.get(LIST, params=query).json()
        found += [info["id"] for info in page["sandboxes"]]
        cursor = page["cursor"]
    return found


@pytest.mark.slow
def test_ten_thousand_sleepers_cost_next_to_nothing(tmp_path: Path) -> None:
    """Ratios have room for a busy machine; `make bench` has the goals."""
    few, few_took = started(tmp_path / "few", many.FEW)
    assert few.end() == 0
    engine, took = started(tmp_path / "many", many.MANY)
    try:
        assert took < 4 * few_took + 1
        with engine.client() as client:
            ids = pages(client)
            assert ids == [many.sleeping(number).id for number in range(many.MANY)]
            begin = time.perf_counter()
            for id in ids[::100]:
                assert client.get(f"{LIST}/{id}").json()["state"] == "stopped"
            assert time.perf_counter() - begin < 10
    finally:
        engine.end(signal.SIGKILL)
