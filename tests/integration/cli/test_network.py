"""``atoll network``: the fake level has no gateway, so lists are refused there with the reason."""

import json

from integration.cli.conftest import Atoll


def test_a_policy_is_shown(command: Atoll) -> None:
    assert command("network", "nobody").returncode != 0
    assert command("network", "net", "--remove", "a.test").returncode == 0
    table = command("network", "net").stdout.decode()
    assert "direct" in table
    policy = json.loads(command("network", "net", "--json").stdout)
    assert (policy["mode"], policy["enableInternet"]) == ("direct", True)


def test_a_list_that_cannot_be_held_is_refused(command: Atoll) -> None:
    done = command("network", "net", "--allow", "a.test")
    assert done.returncode != 0
    assert b"enable_internet" in done.stderr
    assert b"no host" in command("network", "net", "--deny", "http://a").stderr


def test_a_log_without_decisions_is_empty(command: Atoll) -> None:
    command("network", "net", "--remove", "a.test")
    done = command("network", "net", "--log")
    assert (done.returncode, done.stdout) == (0, b"")
    assert command("network", "net", "--log", "--allow", "a.test").returncode == 2
