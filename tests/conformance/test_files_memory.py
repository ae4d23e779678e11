"""Memory of all who take part stays flat, however many entries a directory has."""

import resource
from collections.abc import Callable

import pytest

import atoll
from conformance import remains

MIB = 1 << 10
"""In KiB, as the kernel counts resident memory."""


@pytest.mark.slow
@pytest.mark.beyond_gvisor("memory")
@pytest.mark.container
@pytest.mark.timeout(300)
async def test_f04_a_listing_of_a_hundred_thousand_needs_no_memory(
    url: str, sandbox: atoll.Sandbox, level: str
) -> None:
    script = "mkdir p few; cd p; seq 100000 | xargs touch; cd ../few; seq 5000 | xargs touch"
    await sandbox.exec(["sh", "-c", script], timeout=120)
    peaks: dict[str, Callable[[], int]] = {
        "client": lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "engine": lambda: remains.status(remains.engine_pid(url), "VmHWM"),
    }
    if level != "kubernetes":  # an agent's cgroup is its node's there
        peaks["agent"] = remains.agent_peak(await remains.agents(url))
    assert await _count(sandbox, "few") == 5_000
    before = {name: peak() for name, peak in peaks.items()}
    assert all(before.values())
    assert await _count(sandbox, "p") == 100_000
    grown = {name: peak() - before[name] for name, peak in peaks.items()}
    assert all(value < 16 * MIB for value in grown.values()), f"{grown} KiB more"


async def _count(sandbox: atoll.Sandbox, path: str) -> int:
    seen, cursor = 0, None
    while True:
        page = await sandbox.list_files(path, cursor=cursor, limit=5_000)
        seen += page.count
        if (cursor := page.cursor) is None:
            return seen
