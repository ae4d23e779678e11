"""An engine for the probes alone, on the host that is judged, in a directory that goes with it.

It is started as `atoll serve` is, with the settings of the user but for its directory, a free port
and a key: nothing in it knows that it is probed.
"""

import itertools
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2

from atoll.errors import SandboxError, from_wire
from atoll.probes.box import Box, result
from atoll.sdk import _io

NAMESPACE, OTHER = "Probes", "Others"
BRIDGED = "Sandbox"
"""The namespace of the bridge's sandboxes."""
_STOP_SECONDS = 60.0
_ANSWER_SECONDS = 120.0


class Site:
    """A running engine.

    Args:
        hello: its ready line.
        state_dir: of it, with its log in ``engine.log``.
        level: isolation level of the sandboxes made here; None: the engine's default.
        image: of them; None: the engine's default.
    """

    def __init__(
        self,
        hello: dict[str, Any],
        state_dir: Path,
        level: str | None = None,
        image: str | None = None,
    ) -> None:
        self.hello, self.state_dir = hello, state_dir
        options = {"runtime": level, "image": image}
        self._options = {name: value for name, value in options.items() if value}
        self.client = self.caller()
        self._numbers = itertools.count(1)

    def caller(self, key: str | None = None, *, url: str | None = None) -> httpx2.Client:
        """Return a client: by the unix socket as the owner, by *url*, or with a key."""
        transport = None if url else httpx2.HTTPTransport(uds=self.hello["socket"])
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx2.Client(
            transport=transport, base_url=url or "http://engine", headers=headers,
            timeout=_ANSWER_SECONDS, trust_env=False,
        )  # fmt: skip

    def box(self, namespace: str = NAMESPACE, id: str | None = None, **options: Any) -> Box:
        """Return a sandbox that runs.

        Raises:
            SandboxError: it cannot be made or started.
        """
        box = Box(self.client, namespace, id or f"probe{next(self._numbers)}")
        box.told("PUT", json=self._options | options)
        box.told("POST", "/start", json={})
        return box

    @property
    def pid(self) -> int:
        """Of the engine."""
        return int(self.hello["pid"])

    @property
    def log(self) -> str:
        """What the engine printed so far."""
        return (self.state_dir / "engine.log").read_text(errors="replace")

    def clear(self) -> None:
        """Remove every sandbox, snapshot, backup and volume."""
        for namespace in (NAMESPACE, OTHER, BRIDGED):
            for kind in ("sandboxes", "snapshots", "backups", "volumes"):
                self._clear(f"/v2/namespaces/{namespace}/{kind}", kind)

    def _clear(self, place: str, kind: str) -> None:
        for item in result(self.client.get(place))[kind]:
            self.client.delete(f"{place}/{item['name' if kind == 'volumes' else 'id']}")


@contextmanager
def opened(
    level: str | None = None, image: str | None = None, config: Path | None = None
) -> Iterator[Site]:
    """Start an engine; at the end remove all that it made.

    Args:
        level: isolation level of its sandboxes.
        image: of its sandboxes.
        config: an ``atoll.toml`` that is read; None: the one of the host, if there is one.

    Raises:
        SandboxError: the engine cannot run here.
    """
    state_dir = Path(tempfile.mkdtemp(prefix="atoll-probe-"))
    arguments = ["--state-dir", str(state_dir), "--port", "0"]
    if config:
        arguments += ["--config", str(config)]
    try:
        hello = _io.start_engine(arguments, state_dir / "engine.log")
        if "error" in hello:
            raise from_wire(hello["error"])
        if not hello:
            raise SandboxError(f"the engine did not start: {_tail(state_dir / 'engine.log')}")
        site = Site(hello, state_dir, level, image)
        try:
            yield site
        finally:
            _end(site)
    finally:
        shutil.rmtree(state_dir, ignore_errors=True)


def _end(site: Site) -> None:
    with suppress(httpx2.TransportError, SandboxError):
        site.clear()
    deadline = time.monotonic() + _STOP_SECONDS
    with suppress(ProcessLookupError):
        os.kill(site.pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            os.kill(site.pid, 0)  # until a thread of `start_engine` has reaped it
            time.sleep(0.02)
        os.kill(site.pid, signal.SIGKILL)
    site.client.close()


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-400:]


def canary() -> str:
    """Return a text that is found nowhere else."""
    return "c" + secrets.token_hex(12)
