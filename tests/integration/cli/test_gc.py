"""``atoll gc``: what would be collected, and collecting it."""

import json

from integration.cli.conftest import Atoll


def test_it_tells_and_removes_only_when_asked(command: Atoll) -> None:
    told = command("gc")
    assert told.returncode == 0, told.stderr
    assert b"would be removed" in told.stdout
    assert json.loads(command("gc", "--json").stdout)["dryRun"] is True
    assert json.loads(command("gc", "--dry-run", "--json").stdout)["dryRun"] is True
    assert json.loads(command("gc", "--apply", "--json").stdout)["dryRun"] is False
