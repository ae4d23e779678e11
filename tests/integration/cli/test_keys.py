import json

import pytest

import atoll.sync
from integration.cli.conftest import Atoll


def test_a_key_is_printed_once_and_is_the_only_thing_on_standard_output(command: Atoll) -> None:
    done = command("keys", "create", "ci", "--scope", "read", "--namespace", "N", "--expires", "1h")
    key = done.stdout.decode().strip()
    assert key.startswith("atoll_")
    assert b"shown only now" in done.stderr
    listed = command("keys", "list")
    assert b"ci" in listed.stdout
    assert key not in listed.stdout.decode()
    id = key.split("_")[1]
    assert command("keys", "revoke", id).returncode == 0
    again = command("keys", "revoke", id)
    assert again.returncode == 66
    assert b"no key" in again.stderr


def test_json_is_what_the_api_says(command: Atoll) -> None:
    made = json.loads(command("keys", "create", "x", "--rate", "2", "--json").stdout)
    [found] = [
        one for one in map(json.loads, command("keys", "list", "--json").stdout.splitlines())
        if one["id"] == made["info"]["id"]
    ]  # fmt: skip
    assert found == made["info"]
    assert (found["rate"], found["scope"], found["namespace"]) == (2.0, "run", None)
    done = command("keys", "revoke", found["id"], "--json")
    assert json.loads(done.stdout) == {"revoked": [found["id"]]}


@pytest.mark.parametrize("words", [("x", "--scope", "root"), ("x", "--expires", "soon"), ("",)])
def test_a_key_that_makes_no_sense_is_a_mistake_of_the_caller(
    command: Atoll, words: tuple[str, ...]
) -> None:
    assert command("keys", "create", *words).returncode == 64


def test_a_key_made_here_works_elsewhere(command: Atoll, engine: str) -> None:
    key = command("keys", "create", "x", "--scope", "read").stdout.decode().strip()
    with atoll.sync.connect(engine, api_key=key) as env:
        assert list(env.Sandbox.list()) is not None
        with pytest.raises(atoll.ForbiddenError):
            env.keys.list()
    command("keys", "revoke", key.split("_")[1])
