"""``atoll containers``: look, run, remove."""

import json

from integration.cli.conftest import Atoll


def listed(command: Atoll, *filters: str) -> list[str]:
    """The ids the engine lists: its table shows dates, images and levels too, of any words."""
    lines = command("containers", "list", "--json", *filters).stdout.splitlines()
    return [json.loads(line)["id"] for line in lines]


def test_a_sandbox_is_listed_shown_used_and_removed(command: Atoll) -> None:
    done = command("containers", "exec", "box", "--", "sh", "-c", "cat; exit 5", stdin=b"in")
    assert (done.returncode, done.stdout) == (5, b"in")
    assert b" box " in command("containers", "list").stdout
    assert "box" in listed(command)
    told = json.loads(command("containers", "info", "box", "--json").stdout)
    assert (told["id"], told["isolation"]) == ("box", "fake")
    assert b"generation" in command("containers", "info", "box").stdout
    removed = command("containers", "delete", "box", "--json")
    assert json.loads(removed.stdout) == {"deleted": ["box"]}
    assert "box" not in listed(command)


def test_filters_are_passed_on(command: Atoll) -> None:
    command("containers", "exec", "filtered", "--", "true")
    assert "filtered" in listed(command, "--state", "running")
    assert "filtered" not in listed(command, "--state", "frozen")
    assert "filtered" not in listed(command, "--label", "a=b")
    assert command("containers", "list", "--state", "nonsense").returncode == 64
    command("containers", "delete", "filtered")


def test_what_is_not_there_is_an_error(command: Atoll) -> None:
    done = command("containers", "info", "never-made")
    assert done.returncode == 66
    assert b"never-made" in done.stderr


def test_deleting_what_is_not_there_is_an_error_and_the_rest_is_deleted(command: Atoll) -> None:
    command("containers", "exec", "there", "--", "true")
    done = command("containers", "delete", "never-made", "there", "--json")
    assert done.returncode == 66
    assert json.loads(done.stdout) == {"deleted": ["there"]}
    assert "there" not in listed(command)
    assert b"never-made" in done.stderr
    assert "never-made" not in listed(command)
