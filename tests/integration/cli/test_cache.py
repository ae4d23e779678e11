"""``atoll cache``: here only what it refuses; filling takes a real sandbox and a package index."""

from integration.cli.conftest import Atoll


def test_a_volume_that_others_can_write_to_is_not_filled(command: Atoll) -> None:
    command("volume", "create", "common", "--shared")
    refused = command("cache", "fill", "common", "--pip", "requests")
    assert refused.returncode != 0
    assert b"other options" in refused.stderr


def test_its_verb_is_named(command: Atoll) -> None:
    assert b"fill" in command("cache", "--help").stdout
