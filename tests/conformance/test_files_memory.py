"""Memory of all who take part stays flat, however many entries a directory has."""

import resource
from collections.abc import Callable
from pathlib import Path

import pytest

import atoll

MIB = 1 << 10
"""In KiB, as the kernel counts resident memory."""


def _status(pid: str | int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


def _engine(url: str) -> str:
    return Path(url.removeprefix("unix://")).with_name("engine.lock").read_text().strip()


def _agent(engine_id: str) -> Callable[[], int]:
    """Return what tells the peak of the agents of the engine: of each, its own cgroup's."""
    names = ("memory.max_usage_in_bytes", "memory.peak")
    files = [
        path
        for name in names
        for path in Path("/sys/fs/cgroup").glob(f"**/atoll/{engine_id}/*/agent/{name}")
    ]
    return lambda: max((int(path.read_text()) for path in files), default=0) >> 10


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
        "engine": lambda: _status(_engine(url), "VmHWM"),
    }
    if level != "kubernetes":  # an agent's cgroup is its node's there
        async with atoll.connect(url) as env:
            peaks["agent"] = _agent((await env.version()).engine_id)
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
