"""What an agent is told at its start, whatever driver starts it. Pure; see `atoll.agent.config`."""

from typing import Any

import atoll
from atoll.runtime.base import ContainerSpec


def configuration(spec: ContainerSpec, **own: Any) -> dict[str, Any]:
    """Return the configuration of the agent of *spec*, with what its driver has to add."""
    return {
        "generation": spec.generation,
        "workdir": spec.workdir,
        "user": spec.user,
        "env": spec.env,
        "hostname": spec.hostname,
        "confine": True,
        "lease": spec.lease,
        "version": getattr(atoll, "__version__", ""),
        **own,
    }
