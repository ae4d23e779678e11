"""What the engine tells the agent at its start: one JSON object on an inherited descriptor."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from atoll.agent.devices import Devices
from atoll.wire.agent import MAX_RUNNING

_OWN: Final = {"files", "devices"}
"""Fields that the agent finds out by itself."""


class Config(NamedTuple):
    """Start configuration. Descriptor numbers are those the agent inherits."""

    generation: int = 0
    listen: int = 3
    tcp: Mapping[str, Any] | None = None  # `host` and `port` to listen on, instead of `listen`
    token: str = ""  # that every HEADER has to carry; needed with an address
    procs: tuple[int, ...] = ()  # cgroup.procs files of the commands' cgroup, open for writing
    memory_events: int | None = None  # file with the `oom_kill` counter
    pids_events: int | None = None  # file with the `max` counter
    workdir: str = "/workspace"
    user: str = "0:0"  # of commands that name none
    env: Mapping[str, str] = MappingProxyType({})
    hostname: str = ""
    confine: bool = True  # False: on a bare host, in tests
    version: str = ""
    limits: Mapping[str, int] = MappingProxyType({})  # of each command: NPROC, DATA, FSIZE, …
    commands: int = MAX_RUNNING  # at once; file operations and connections to ports: as many each
    files: int = 1024  # soft limit of open files of commands; the agent takes what it may
    image: Mapping[str, Any] | None = (
        None  # `env` and `workdir` of an image that only the agent sees
    )
    devices: Devices = Devices()
    lease: float = 0.0  # seconds until it ends itself unless an engine renews; 0: it does not
    subreapers: bool = True  # whether all kernels of this level know them

    @property
    def events(self) -> list[int]:
        """Descriptors of the counters that there are."""
        return [fd for fd in (self.memory_events, self.pids_events) if fd is not None]


def parse(data: bytes) -> Config:
    """Return the configuration in *data*; fields of a newer engine are ignored.

    Raises:
        ValueError: it is not JSON.
        TypeError: it is no object.
        PermissionError: it has an address that everybody inside could use, for lack of a token.
    """
    found: Any = json.loads(data)
    if not isinstance(found, dict):
        raise TypeError("the configuration is not a JSON object")
    known = {name: found[name] for name in Config._fields if name in found and name not in _OWN}
    known["procs"] = tuple(known.get("procs") or ())
    config = Config(**known)
    if config.tcp is not None and not config.token:
        raise PermissionError("an agent with an address needs a token")
    return config
