"""The agent as the command of a Pod's container: there is nobody who could hand it descriptors.

Its configuration is a variable of its own environment. The rest of that environment is the image's:
commands start with it, as the engine is told in the answer to hello.
"""

import json
import os
from collections.abc import Mapping
from typing import Final

from atoll.agent.signals import ignore_signals

VARIABLE: Final = "ATOLL_AGENT"

_CLUSTER: Final = "KUBERNETES_"
"""Prefix of variables that a kubelet adds: they tell where the cluster's API is."""

_OWN: Final = frozenset({VARIABLE, "HOSTNAME", "HOME"})


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what the image says that its commands start with. Pure."""
    return {
        name: value
        for name, value in environ.items()
        if name not in _OWN and not name.startswith(_CLUSTER)
    }


def configuration(environ: Mapping[str, str], cwd: str) -> bytes:
    """Return the agent's configuration; see `atoll.agent.config`. Pure.

    Raises:
        KeyError: the variable is missing.
        ValueError: it is not JSON.
    """
    config = json.loads(environ[VARIABLE])
    env = inherited(environ)
    image = {"env": env, "workdir": cwd}
    told = {"env": env | config.get("env", {}), "workdir": cwd, "image": image}
    return json.dumps(config | told).encode()


def main() -> None:
    """Run until the Pod is shut down."""
    data = configuration(os.environ, os.getcwd())
    os.environ.clear()
    ignore_signals()
    os.chdir("/")
    from atoll.agent.start import run  # as small as can be until here

    run(data, None)
