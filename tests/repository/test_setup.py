"""The scripts of a fresh checkout: what they ask of a host, and what they say where it lacks it."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SETUP = (ROOT / "tools/setup.sh").read_text()


def test_programs_of_root_are_found_by_users_without_them_in_their_path(tmp_path: Path) -> None:
    """Debian's users have no /usr/sbin in PATH; `nft` and `mkfs.btrfs` are there."""
    line = next(line for line in SETUP.splitlines() if line.startswith("PATH="))
    done = subprocess.run(
        ["bash", "-c", f'{line}; echo "$PATH"'],
        env={"PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"/usr/sbin", "/sbin"} <= set(done.stdout.strip().split(":"))


def test_every_package_that_test_roots_want_is_installed_by_setup() -> None:
    roots = (ROOT / "tests/e2e/runtime/roots.py").read_text()
    wanted = re.findall(r'_program\("([^"]+)", "([^"]+)"\)', roots)
    assert wanted
    assert [f"{p}:{c}" for c, p in wanted if f"{p}:" not in SETUP] == []


def test_an_error_of_pip_is_shown_in_full(tmp_path: Path) -> None:
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho first; echo 'ERROR: because' >&2; exit 1\n")
    python.chmod(0o755)
    start = SETUP.index('[ -x "$venv/bin/python" ]')
    done = subprocess.run(
        ["bash", "-c", "set -euo pipefail\npython=false\nvenv=$1\n" + SETUP[start:], "x", tmp_path / "venv"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "first\nERROR: because" in done.stderr


def test_run_needs_root_and_says_so_before_anything_else() -> None:
    done = subprocess.run(
        ["make", "-n", "run"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "need root" in "".join(done.stdout.splitlines(keepends=True)[:2])
