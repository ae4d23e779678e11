"""The scripts of a fresh checkout: what they ask of a host, and what they say where it lacks it."""

import os
import re
import subprocess
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

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


def test_the_tests_say_first_what_is_skipped_without_root() -> None:
    done = subprocess.run(
        ["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "not root" in "".join(done.stdout.splitlines(keepends=True)[:2])


def test_constraints_pin_everything_that_a_fresh_checkout_installs() -> None:
    """What is not pinned pip looks for by trial, for minutes, and may not find."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "constraints.txt").read_text().split()
    pinned = {canonicalize_name(name): version for name, version in (x.split("==") for x in lines)}
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    found: dict[tuple[NormalizedName, frozenset[str]], str] = {}
    waiting = [(Requirement(text), {""}) for text in wanted]
    while waiting:
        one, extras = waiting.pop()
        key = canonicalize_name(one.name), frozenset(one.extras)
        asked = one.marker is None or any(one.marker.evaluate({"extra": x}) for x in extras)
        if not asked or key in found:
            continue
        there = distribution(one.name)
        found[key] = there.version
        waiting += [(Requirement(text), {"", *one.extras}) for text in there.requires or ()]
    installed = {name: version for (name, _), version in found.items()}
    assert {n: v for n, v in installed.items() if pinned.get(n) != v} == {}
