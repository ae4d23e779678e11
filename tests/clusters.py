"""The Kubernetes cluster of a test run, if there is one: `make test-cluster` names it."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from atoll.cluster_settings import ClusterSettings
from atoll.runtime.kubernetes.api import Api

KUBECONFIG = os.environ.get("ATOLL_CLUSTER_KUBECONFIG", "")

needed = pytest.mark.skipif(not KUBECONFIG, reason="runs by make test-cluster")
"""Marks tests of a real cluster."""


def settings(**changes: object) -> ClusterSettings:
    """Return how the cluster of this run is used: the variables that an engine would read, too."""
    told: dict[str, object] = {
        name: value
        for name in ("namespace", "agent_image", "pull_policy")
        if (value := os.environ.get(f"ATOLL_CLUSTER_{name.upper()}"))
    }
    told["kubeconfig"] = Path(KUBECONFIG)
    return ClusterSettings(**told | changes)  # type: ignore[arg-type]


def environment() -> dict[str, str]:
    """Return the variables by which an engine of its own process uses the cluster of this run."""
    names = {name: value for name, value in os.environ.items() if name.startswith("ATOLL_CLUSTER_")}
    own = {"ATOLL_CLUSTER_KUBECONFIG": KUBECONFIG, "ATOLL_RUNTIME_START_TIMEOUT": "120"}
    return {**names, **own}


@asynccontextmanager
async def connected() -> AsyncIterator[Api]:
    """Yield the cluster's API."""
    api = await Api.connect(Path(KUBECONFIG))
    try:
        yield api
    finally:
        await api.close()
