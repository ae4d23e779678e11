"""``atoll pool``: what is kept ready."""

import json

from integration.cli.conftest import Atoll


def test_the_pool_is_filled_shown_and_emptied(command: Atoll) -> None:
    primed = command("pool", "prime", "1")
    assert primed.returncode == 0, primed.stderr
    assert b"lite" in primed.stdout
    stats = json.loads(command("pool", "stats", "--json").stdout)
    assert (stats["warm"], stats["kinds"][0]["target"]) == (1, 1)
    assert json.loads(command("pool", "shutdown", "--json").stdout)["warm"] == 0
