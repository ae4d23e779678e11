"""Engines as processes of their own, started, killed and asked over their unix socket."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2


class EngineProcess:
    """One ``atoll serve`` on *state_dir*; `hello` is its ready line."""

    def __init__(
        self,
        state_dir: Path,
        *flags: str,
        level: str = "fake",
        settings: Mapping[str, str] | None = None,
        enter: Sequence[str] = (),
    ) -> None:
        self.state_dir = state_dir
        state_dir.mkdir(mode=0o700, exist_ok=True)
        reader, writer = os.pipe()
        self._log = (state_dir / "test.log").open("a")
        port = [] if "--port" in flags else ["--no-tcp"]
        self.process = subprocess.Popen(
            [
                *enter,
                *(sys.executable, "-m", "atoll.cli.main", "serve", "--state-dir", str(state_dir)),
                *(*port, "--ready-fd", str(writer), *flags),
            ],
            pass_fds=[writer],
            env={
                **os.environ,
                "ATOLL_RUNTIME_DEFAULT": level,
                "ATOLL_LOG_FORMAT": "json",
                **(settings or {}),
            },
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        os.close(writer)
        with os.fdopen(reader) as lines:
            line = lines.readline()
        self.hello: dict[str, Any] = json.loads(line) if line else {}

    @property
    def log(self) -> str:
        return (self.state_dir / "test.log").read_text()

    def client(self) -> httpx2.Client:
        transport = httpx2.HTTPTransport(uds=self.hello["socket"])
        return httpx2.Client(transport=transport, base_url="http://engine", timeout=30)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Signal the process and wait for it; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.wait()

    def wait(self, seconds: float = 20) -> int:
        code = self.process.wait(seconds)
        self._log.close()
        return code


def eventually(what: Any, seconds: float = 10) -> None:
    """Wait until *what* returns something true."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)
