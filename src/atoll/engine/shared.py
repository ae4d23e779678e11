"""What all sandboxes of one engine work with, made once by `engine`."""

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.engine.capacity.admission import Admission
from atoll.engine.capacity.pool import WarmPool
from atoll.engine.egress.secrets import Secrets
from atoll.engine.lifecycle.faults import Faults
from atoll.engine.lifecycle.peers import Peers
from atoll.engine.lifecycle.sequence import Lifecycle
from atoll.engine.objects.objects import Objects
from atoll.engine.ports.ports import Ports
from atoll.engine.ports.tunnels import Tunnels
from atoll.engine.processes.background import Processes
from atoll.engine.storage.mounts import Mounts
from atoll.engine.storage.volumes import Volumes
from atoll.engine.store.store import Store
from atoll.settings import Settings
from atoll.wire.sandbox import NamespaceConfig

if TYPE_CHECKING:
    from atoll.engine.sandbox import Sandbox


def fresh_name(engine_id: str) -> str:
    """Return a name that nothing on this host has."""
    return f"{engine_id}-{secrets.token_hex(6)}"


@dataclass(frozen=True, slots=True)
class Shared:
    """What all sandboxes of an engine work with."""

    engine_id: str
    settings: Settings
    store: Store
    lifecycle: Lifecycle
    admission: Admission
    pool: WarmPool
    processes: Processes
    ports: Ports
    tunnels: Tunnels
    volumes: Volumes
    objects: Objects
    mounts: Mounts
    secrets: Secrets
    namespaces: dict[str, NamespaceConfig]
    live: "dict[tuple[str, str], Sandbox]"
    peers: Peers

    @property
    def faults(self) -> Faults:
        """Where a test has the engine die."""
        return self.lifecycle.faults

    def new_name(self) -> str:
        """Return a fresh name for a layer or a start: found again by its engine's prefix."""
        return fresh_name(self.engine_id)
