"""What the engine tells the agent at its start: one JSON object on an inherited descriptor."""

import json
from typing import Any, NamedTuple


class Config(NamedTuple):
    """Start configuration. Descriptor numbers are those the agent inherits."""

    generation: int = 0
    listen: int = 3
    procs: tuple[int, ...] = ()  # cgroup.procs files of the commands' cgroup, open for writing
    memory_events: int | None = None  # file with the `oom_kill` counter
    workdir: str = "/workspace"
    user: str = "0:0"  # of commands that name none
    env: dict[str, str] = {}
    hostname: str = ""
    confine: bool = True  # False: on a bare host, in tests
    version: str = ""


def parse(data: bytes) -> Config:
    """Return the configuration in *data*; fields of a newer engine are ignored.

    Raises:
        ValueError: it is not a JSON object.
    """
    found: Any = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("the configuration is not a JSON object")
    known = {name: found[name] for name in Config._fields if name in found}
    known["procs"] = tuple(known.get("procs") or ())
    return Config(**known)
