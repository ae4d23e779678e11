from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import atoll.sync
import rootless


class Rootless:
    """A user's engine that can be killed and started again."""

    def __init__(self, lent: rootless.User) -> None:
        self.user = lent
        self.state_dir = lent.home / ".local/state/atoll"
        self._running = ExitStack()
        self.env: Any = None
        self.pid, self.socket = 0, ""

    def start(self, group: Path | None = None) -> None:
        ready = self._running.enter_context(rootless.engine(self.user, group=group))
        self.pid, self.socket = int(str(ready["pid"])), str(ready["socket"])
        self.env = self._running.enter_context(atoll.sync.connect(f"unix://{self.socket}"))

    def stop(self) -> None:
        self._running.close()

    def box(self, id: str, **options: Any) -> Any:
        return atoll.sync.get_sandbox(self.env.Sandbox, id, **options)

    def processes(self) -> list[int]:
        """All processes of the user's sandboxes: neither the engine nor what goes with it."""
        own = [pid for pid in rootless.processes() if pid != self.pid]
        return [pid for pid in own if not rootless.outliving(pid)]


@pytest.fixture(scope="module")
def lent() -> Iterator[rootless.User]:
    with rootless.user() as found:
        yield found


@pytest.fixture
def host(lent: rootless.User) -> Iterator[Rootless]:
    found = Rootless(lent)
    found.start()
    yield found
    found.stop()
