"""What holds in a sandbox holds in its isolated sessions, whose /proc and init the agent makes."""

import json

import pytest

from e2e.runtime.boxes import Bench
from security.test_container import PROBES, box_with_probes

pytestmark = pytest.mark.e2e

_RUN = """
import json, sys
sys.path.insert(0, "/probes")
from security.inside import probes
print(json.dumps({{name: getattr(probes, name)() for name in {names!r}}}))
"""


async def test_every_probe_finds_nothing_in_an_isolated_session(bench: Bench) -> None:
    async with box_with_probes(bench) as box:
        box.call("session.create", id="own", isolation=True)
        found = json.loads(box.python(_RUN.format(names=PROBES), session="own"))
        assert {name: what for name, what in found.items() if what} == {}
        assert box.call("hello")["pid"] == 1


async def test_a_session_without_masks_is_noticed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The masks of a session are those of its sandbox, seen by the same probe."""
    monkeypatch.setattr("atoll.runtime.oci.bundle.MASKED_PATHS", ())
    monkeypatch.setattr("atoll.runtime.oci.bundle.READ_ONLY_PATHS", ())
    async with box_with_probes(bench) as box:
        box.call("session.create", id="own", isolation=True)
        found = json.loads(box.python(_RUN.format(names=["masked_paths"]), session="own"))
        assert "read /proc/interrupts" in found["masked_paths"]
