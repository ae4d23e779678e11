"""One start under way: what is wanted, and what its steps have made so far."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from atoll.engine.lifecycle import variables
from atoll.engine.lifecycle.variables import Variables
from atoll.engine.link.link import Endpoint
from atoll.engine.parts import Image, Slot
from atoll.engine.storage import packages
from atoll.engine.store.record import Mounted, Record
from atoll.network.gateway.protocol import Authority
from atoll.network.policy import SandboxPolicy
from atoll.runtime.base import Mount
from atoll.settings import InstanceType
from atoll.wire.sandbox import SandboxOptions

T = TypeVar("T")


@dataclass(slots=True)
class Launch:
    """One start: what is wanted, and what the steps have made so far."""

    record: Record
    wanted: SandboxOptions
    size: InstanceType
    variables: tuple[Variables, ...] = ()
    base: str | None = None  # the snapshot that a new layer begins as
    image_name: str = ""  # what the image is called, when it is wanted by its digest
    image: Image | None = None
    new_layer: bool = False
    id_base: int = 0
    rootfs: Path | None = None
    slot: Slot | None = None
    mounts: list[Mount] = field(default_factory=list)
    volumes: dict[str, Mounted] = field(default_factory=dict)
    trust_env: dict[str, str] = field(default_factory=dict)
    policy: SandboxPolicy | None = None  # None: it is nobody's yet, and nothing runs in it
    authority: Authority | None = None
    lease: float = 0.0  # seconds; see `InForce.lease`
    endpoint: Endpoint | None = None
    seen_env: dict[str, str] = field(default_factory=dict)  # the image's, as the agent found it
    seen_workdir: str = ""
    took: dict[str, float] = field(default_factory=dict)
    """Step → seconds."""

    @property
    def host_ref(self) -> str:
        """The name of everything this start makes."""
        if self.record.host_ref is None:
            raise AssertionError("a start is recorded before it is made")
        return self.record.host_ref

    @property
    def base_env(self) -> dict[str, str]:
        """Variables before anybody set some."""
        cache = packages.ENV if self.wanted.package_cache else {}
        return self.trust_env | dict(made(self.image).config.env) | cache | self.seen_env

    @property
    def env(self) -> dict[str, str]:
        """Variables that commands start with."""
        return variables.effective(self.base_env, *self.variables)


def made(value: T | None) -> T:
    """Return what an earlier step made."""
    if value is None:
        raise AssertionError("an earlier step makes this")
    return value
