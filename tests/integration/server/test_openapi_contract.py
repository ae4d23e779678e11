"""The document and the server agree, as somebody sees it who wrote neither: schemathesis.

All its checks: no server errors, statuses, types, headers and schemas as documented, what the
schema forbids is refused, other methods are 405, keys are needed, what was deleted is gone.
"""

import shutil
from pathlib import Path

import pytest

from atoll.wire import ops
from integration.server import contract

if not shutil.which("bwrap"):
    pytest.skip("bubblewrap is not installed", allow_module_level=True)


HALF = [word for op in ops.TABLE[::2] for word in ("--include-operation-id", op.name)]
"""Every second operation: the others have the same kinds of fields, and wait for the long run."""


def passes(state: Path, *options: str) -> None:
    done = contract.run(state, list(options))
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
    assert "Tested: " in done.stdout


@pytest.mark.timeout(300)
def test_edges_of_every_field_are_handled_as_documented(tmp_path: Path) -> None:
    passes(tmp_path, "--phases", "coverage", "--seed", "1", *HALF)


@pytest.mark.timeout(300)
def test_calls_that_follow_from_each_other_are_handled_as_documented(tmp_path: Path) -> None:
    passes(tmp_path, "--phases", "stateful", "-n", "5", "--seed", "1")


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_much_chance_finds_nothing(tmp_path: Path) -> None:
    passes(tmp_path, "-n", "100")


def test_a_fault_would_be_found(tmp_path: Path) -> None:
    """What the checks report fails the test: here an answer in less time than light has."""
    done = contract.run(
        tmp_path,
        ["--phases", "fuzzing", "-n", "3", "--include-operation-id", "version",
         "--checks", "all", "--max-response-time", "0.000001"],
    )  # fmt: skip
    assert done.returncode == 1, done.stdout[-2_000:]
