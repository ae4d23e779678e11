"""What holds in a sandbox holds in its isolated sessions, whose /proc and init the agent makes."""

import json

import pytest

from atoll.probes import program
from e2e.runtime.boxes import Bench
from security.test_container import ALONE, FUNCTIONS

pytestmark = pytest.mark.e2e


async def test_every_probe_finds_nothing_in_an_isolated_session(bench: Bench) -> None:
    async with bench.running() as box:
        box.call("session.create", id="own", isolation=True)
        script = program.script({name: {} for name in ALONE})
        found = json.loads(box.python(script, session="own"))
        assert {name: what for name, what in found.items() if what} == {}
        assert box.call("hello")["pid"] == 1


async def test_a_session_without_masks_is_noticed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The masks of a session are those of its sandbox, seen by the same probe."""
    monkeypatch.setattr("atoll.runtime.oci.bundle.MASKED_PATHS", ())
    monkeypatch.setattr("atoll.runtime.oci.bundle.READ_ONLY_PATHS", ())
    async with bench.running() as box:
        box.call("session.create", id="own", isolation=True)
        masked = FUNCTIONS["masked_paths"]
        found = json.loads(box.python(program.script({masked: {}}), session="own"))
        assert "read /proc/interrupts" in found[masked]
