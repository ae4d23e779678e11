import json

from integration.cli.conftest import Atoll


def test_every_namespace_with_a_sandbox_is_listed(command: Atoll) -> None:
    for name in ("One", "Two"):
        assert command("run", "--namespace", name, "--id", "box", "true").returncode == 0
    done = command("namespaces", "--json")
    assert done.returncode == 0, done.stderr
    found = {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert found["One"] == {"name": "One", "sandboxes": 1, "running": 1, "configured": False}
    assert "Two" in found
    assert b"One" in command("namespaces").stdout
