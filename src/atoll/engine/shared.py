"""What all sandboxes of one engine work with, made once by `engine`."""

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.engine.admission import Admission
from atoll.engine.lifecycle import Lifecycle
from atoll.engine.ports import Ports
from atoll.engine.processes.background import Processes
from atoll.engine.store import Store
from atoll.settings import Settings
from atoll.wire.sandbox import NamespaceConfig

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox


@dataclass(frozen=True, slots=True)
class Shared:
    """What all sandboxes of an engine work with."""

    engine_id: str
    settings: Settings
    store: Store
    lifecycle: Lifecycle
    admission: Admission
    processes: Processes
    ports: Ports
    namespaces: dict[str, NamespaceConfig]
    live: "dict[tuple[str, str], Sandbox]"

    def new_name(self) -> str:
        """Return a fresh name for a layer or a start: found again by its engine's prefix."""
        return f"{self.engine_id}-{secrets.token_hex(6)}"
