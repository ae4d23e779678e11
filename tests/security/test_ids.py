"""26: the host ids of a sandbox are its own while it runs, whatever becomes of the engine meanwhile."""

import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx2
import pytest

from e2e.hosts import SANDBOXES, Host, run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def base(client: httpx2.Client, id: str) -> int:
    """Return the host's id of root in the sandbox *id*, which this starts."""
    told = run(client, f"{SANDBOXES}/{id}", "cat", "/proc/self/uid_map")["stdout"].split()
    assert told[0] == "0"
    return int(told[1])


@pytest.mark.slow
def test_ranges_are_told_apart_over_a_crash_and_used_again(host: Host) -> None:
    engine = host.start()
    with engine.client() as client, ThreadPoolExecutor() as threads:
        before = dict(zip("abc", threads.map(partial(base, client), "abc"), strict=True))
    assert len(set(before.values())) == 3
    engine.end(signal.SIGKILL)
    with host.start().client() as client:
        new = base(client, "d")
        assert {id: base(client, id) for id in "abc"} == before
        assert new not in before.values()
        assert client.delete(f"{SANDBOXES}/a").is_success
        others = {base(client, "e"), base(client, "f")}
        assert before["a"] in others
        assert others.isdisjoint({new, before["b"], before["c"]})
