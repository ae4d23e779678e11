import json

from integration.cli.conftest import Atoll


def test_a_value_is_read_from_standard_input_and_shown_nowhere(command: Atoll) -> None:
    done = command("secret", "put", "KEY", "--host", "*.test", stdin=b"the-value\n")
    assert done.returncode == 0
    assert done.stdout == b""
    listed = command("secret", "list", "--json")
    assert json.loads(listed.stdout)["hosts"] == ["*.test"]
    assert b"the-value" not in listed.stdout + command("secret", "list").stdout
    assert command("secret", "delete", "KEY").returncode == 0
    assert command("secret", "delete", "KEY").returncode == 66


def test_no_value_is_a_mistake_of_the_caller(command: Atoll) -> None:
    assert command("secret", "put", "KEY", stdin=b"").returncode == 64
