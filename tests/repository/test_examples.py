import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_the_quick_start_gives_the_answer_of_the_readme(tmp_path: Path) -> None:
    """What `make run` runs: the image is built, the Worker served, the sandbox asked."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools/quickstart.py"],
        env=os.environ | {"ATOLL_STATE_DIR": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '{"output": "4\\n"}' in done.stdout.splitlines()


def test_every_example_is_run_by_a_test() -> None:
    found = sorted(path.name for path in (ROOT / "examples").iterdir())
    assert found == ["quickstart"]
