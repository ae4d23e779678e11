"""An engine with the fake runtime, and the command line as a user starts it."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import atoll.sync

Atoll = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    state_dir = tmp_path_factory.mktemp("cli") / "state"
    with atoll.sync.local(state_dir=state_dir) as env:
        # Only while the engine starts: this fixture lives on beside tests of other levels.
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ATOLL_RUNTIME_DEFAULT", "fake")
            env.version()
        yield env.transport.endpoint.shown
    with (state_dir / "engine.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


@pytest.fixture
def command(engine: str, tmp_path: Path) -> Atoll:
    """Run ``atoll`` at this engine and return what came of it."""

    def run(
        *words: str, stdin: bytes = b"", **options: Any
    ) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [sys.executable, "-m", "atoll.cli.main", *words],
            input=stdin,
            capture_output=True,
            check=False,
            timeout=40,
            cwd=tmp_path,
            env=os.environ | {"ATOLL_URL": engine},
            **options,
        )

    return run
