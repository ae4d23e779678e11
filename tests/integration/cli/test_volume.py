"""``atoll volume``: volumes and their files without any sandbox."""

import json
from pathlib import Path

from integration.cli.conftest import Atoll


def test_a_volume_is_made_resized_listed_and_deleted(command: Atoll) -> None:
    made = command("volume", "create", "one", "--size", "20MB", "--shared", "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["shared"] is True
    assert (
        json.loads(command("volume", "resize", "one", "30MB", "--json").stdout)["size"]
        == 30_000_000
    )
    listed = command("volume", "list").stdout.decode()
    assert "one" in listed
    assert "shared" in listed
    assert "30000000" in command("volume", "info", "one").stdout.decode()
    assert command("volume", "delete", "one", "--json").stdout == b'{"deleted": "one"}\n'
    gone = command("volume", "info", "one")
    assert gone.returncode == 66
    assert b"no volume" in gone.stderr


def test_files_go_in_and_out_are_moved_and_removed(command: Atoll, tmp_path: Path) -> None:
    command("volume", "create", "two")
    (tmp_path / "local").write_bytes(b"content")
    assert command("volume", "put", "two", "local", "d/f").returncode == 0
    put = command("volume", "put", "two", "-", "d/g", "--json", stdin=b"piped")
    assert json.loads(put.stdout)["size"] == 5
    assert command("volume", "get", "two", "d/g").stdout == b"piped"
    assert command("volume", "mkdir", "two", "e").returncode == 0
    assert command("volume", "mv", "two", "d/f", "e/f").returncode == 0
    assert command("volume", "get", "two", "e/f", "out").returncode == 0
    assert (tmp_path / "out").read_bytes() == b"content"
    assert b"not empty" in command("volume", "rm", "two", "e").stderr
    assert command("volume", "rm", "two", "e", "--recursive").returncode == 0
    [left] = command("volume", "ls", "two", "--json").stdout.splitlines()
    assert json.loads(left)["path"] == "d"


def test_a_name_in_a_volume_is_shown_and_not_obeyed(command: Atoll) -> None:
    """It may have been chosen by whoever was in a sandbox."""
    command("volume", "create", "three")
    command("volume", "put", "three", "-", "\x1b[31mred")
    listed = command("volume", "ls", "three").stdout
    assert b"\x1b" not in listed
    assert b"x1b[31mred" in listed
