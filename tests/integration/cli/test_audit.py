import json

from integration.cli.conftest import Atoll


def test_who_changed_what_is_shown_newest_first(command: Atoll) -> None:
    command("keys", "create", "one")
    command("keys", "create", "two")
    done = command("audit", "--operation", "create_key", "--limit", "2", "--json")
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["number"] > second["number"]
    assert (first["caller"], first["operation"], first["status"]) == ("owner", "create_key", 200)
    table = command("audit", "--limit", "5").stdout.decode()
    assert "create_key" in table


def test_filters_that_fit_nothing_show_nothing(command: Atoll) -> None:
    done = command("audit", "--namespace", "Nobody", "--caller", "nobody", "--json")
    assert (done.returncode, done.stdout) == (0, b"")
