import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_the_objects_example_greets_remembers_and_reminds_itself(tmp_path: Path) -> None:
    with served("objects", tmp_path) as url:
        assert get(f"{url}/?name=ada") == "a room of one's own\nhello, ada\n"
        assert get(f"{url}/?name=bob").endswith("hello, bob\n")
        seen: dict[str, Any] = {}
        until = time.monotonic() + 60
        while seen.get("state") != {"reminded of": "bob"}:
            assert time.monotonic() < until, seen
            time.sleep(0.2)
            seen = json.loads(get(url))
        assert seen["visitors"] == ["ada", "bob"]


@contextmanager
def served(name: str, tmp_path: Path) -> Iterator[str]:
    """Serve an example with `atoll dev` and yield its address."""
    argv = [sys.executable, "-m", "atoll.cli.main", "dev", str(ROOT / "examples" / name)]
    environment = os.environ | {"ATOLL_STATE_DIR": str(tmp_path / "state")}
    server = subprocess.Popen(
        [*argv, "--port", "0", "--json"], env=environment, stdout=subprocess.PIPE, text=True
    )
    with server:
        assert server.stdout
        try:
            told = (json.loads(line) for line in server.stdout)
            yield next(line["url"] for line in told if "url" in line)
        finally:
            server.terminate()
            server.stdout.read()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=120) as answer:
        return str(answer.read().decode())


def test_every_example_is_run_by_a_test() -> None:
    found = sorted(path.name for path in (ROOT / "examples").iterdir())
    assert found == ["objects", "quickstart"]
