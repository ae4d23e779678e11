"""``atoll cp``: bytes arrive as they are, whatever the shape."""

import json
import os
from pathlib import Path

from integration.cli.conftest import Atoll


def test_a_file_goes_in_and_comes_out_as_it_was(command: Atoll, tmp_path: Path) -> None:
    data = os.urandom(300_000)
    (tmp_path / "f").write_bytes(data)
    told = command("cp", "f", "cp-box:/tmp/atoll-cp-test", "--json")
    assert json.loads(told.stdout)["bytes"] == len(data)
    (tmp_path / "into").mkdir()
    assert command("cp", "cp-box:/tmp/atoll-cp-test", "into").returncode == 0
    assert (tmp_path / "into" / "atoll-cp-test").read_bytes() == data
    Path("/tmp/atoll-cp-test").unlink(missing_ok=True)
    command("containers", "delete", "cp-box")


def test_a_file_goes_into_a_folder_under_its_own_name(command: Atoll, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    for target in ("into-box:", "into-box:new/", "into-box:new"):
        assert command("cp", "f", target).returncode == 0
    listed = command("containers", "exec", "into-box", "--", "find", ".", "-type", "f")
    assert sorted(listed.stdout.decode().split()) == ["./f", "./new/f"]
    command("containers", "delete", "into-box")


def test_what_is_missing_is_told_on_either_side(command: Atoll) -> None:
    assert command("cp", "cp-box:/no/such", "x").returncode == 66
    done = command("cp", "no-such", "cp-box:/tmp/x")
    assert done.returncode != 0
    assert b"Traceback" not in done.stderr
