"""``atoll disk``: what takes how much."""

import json

from integration.cli.conftest import Atoll


def test_entries_and_sums_of_a_namespace_are_told(command: Atoll) -> None:
    assert command("volume", "create", "v", "-n", "Disk", "--size", "50MB").returncode == 0
    told = command("disk", "-n", "Disk").stdout.decode()
    assert "50000000" in told
    assert "1 volume(s): 0 bytes" in told
    found = json.loads(command("disk", "-n", "Disk", "--json", "--limit", "1").stdout)
    assert (found["counts"], found["entries"][0]["id"]) == ({"volume": 1}, "v")
