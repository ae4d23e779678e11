"""Whether a cluster's network enforces policies: nothing of its API tells, so it is tried.

Three Pods of the agent's image: one listens, two try to reach it, and one of those is closed by a
policy that was there before it. How each ended is its exit code: nothing is entered or read. The one
that is not closed tells whether the closed one would have got through.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, Final

from atoll.cluster_settings import ClusterSettings
from atoll.runtime.kubernetes import api, manifest, status
from atoll.runtime.kubernetes.api import Api, Object

TRIAL_LABEL: Final = "atoll.dev/trial"
"""Not that of sandboxes: where it is installed, a policy closes those anyway."""

PORT: Final = 7071
LOOKS: Final = 0.3
"""Seconds between two looks at a Pod."""

REACHED: Final = 0
KEPT_OUT: Final = 3
"""Exit codes of who tries to reach the other."""

_LISTEN: Final = f"""\
import socket
with socket.create_server(("0.0.0.0", {PORT})) as server:
    while True:
        server.accept()[0].close()
"""
_CONNECT: Final = f"""\
import socket, sys, time
def reached():
    try:
        socket.create_connection(({{address!r}}, {PORT}), 2).close()
        return True
    except OSError:
        return False
end, row = time.monotonic() + 20, 0
while row < {{needed}} and time.monotonic() < end:
    row = row + 1 if reached() else 0
    time.sleep(0.2)
sys.exit({REACHED} if row else {KEPT_OUT})
"""

AT_ONCE: Final = 25
"""Connections in a row after which a Pod counts as not kept out: policies come into force a moment
after its start."""

_INTERPRETER: Final = [
    word.replace(manifest.AGENT_DIR, manifest.BUNDLE) for word in manifest.PYTHON
]


class Outcome(Enum):
    """What was found."""

    ENFORCED = "enforced"
    OPEN = "not enforced"
    UNREACHABLE = "Pods do not reach each other, with or without a policy"


async def enforcement(cluster: Api, settings: ClusterSettings, patience: float) -> Outcome:
    """Return whether policies are enforced.

    Args:
        patience: seconds that each Pod has to start and to end.

    Raises:
        ApiError: the cluster refuses what the trial needs.
        SandboxError: a Pod does not start.
        TimeoutError: it did not end within *patience*.
    """
    trial = _Trial(cluster, settings, patience)
    async with trial.listening() as address:
        free, closed = await asyncio.gather(
            trial.connects("free", address, needed=1),
            trial.connects("closed", address, needed=AT_ONCE),
        )
    if free != REACHED:
        return Outcome.UNREACHABLE
    return Outcome.OPEN if closed == REACHED else Outcome.ENFORCED


class _Trial:
    def __init__(self, cluster: Api, settings: ClusterSettings, patience: float) -> None:
        self._api, self._settings, self._patience = cluster, settings, patience
        self._name = f"trial-{secrets.token_hex(4)}"
        self._pods = api.path(settings.namespace, "pods")
        self._policies = api.path(
            settings.namespace, "networkpolicies", group="apis/networking.k8s.io/v1"
        )

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Close one Pod to be, start who listens; yield its address, remove all again."""
        await self._api.create(self._policies, policy(self._name, self._label("closed")))
        try:
            started = await self._start("server", _LISTEN, status.address)
            yield str(status.address(started))
        finally:
            for role in ("server", "free", "closed"):
                await self._api.delete(f"{self._pods}/{self._name}-{role}", grace=0)
            await self._api.delete(f"{self._policies}/{self._name}")

    async def connects(self, role: str, address: str, *, needed: int) -> int:
        """Have a Pod try to reach *address*; return its exit code."""
        code = _CONNECT.format(address=address, needed=needed)
        ended = await self._start(role, code, exit_code)
        return exit_code(ended) or 0

    async def _start(self, role: str, code: str, wanted: Callable[[Object], object]) -> Object:
        name = f"{self._name}-{role}"
        made = pod(name, self._label(role), code, self._settings)
        await self._api.create(self._pods, made)
        async with asyncio.timeout(self._patience):
            while True:
                found = await self._api.get(f"{self._pods}/{name}")
                if found and wanted(found) is not None:
                    return found
                if error := status.failure(found):
                    raise error
                await asyncio.sleep(LOOKS)

    def _label(self, role: str) -> Mapping[str, str]:
        return {TRIAL_LABEL: f"{self._name}-{role}"}


def exit_code(found: Object) -> int | None:
    """Return how the Pod's program ended; None: it did not. Pure."""
    for one in found.get("status", {}).get("containerStatuses", ()):
        if ended := one.get("state", {}).get("terminated"):
            return int(ended["exitCode"])
    return None


def pod(
    name: str, label: Mapping[str, str], code: str, settings: ClusterSettings
) -> dict[str, Any]:
    """Return a Pod that runs *code* with the agent's interpreter. Pure."""
    container = {
        "name": manifest.CONTAINER,
        "image": settings.agent_image,
        "imagePullPolicy": settings.pull_policy,
        "command": [*_INTERPRETER, code],
        "securityContext": manifest.restricted([]) | {"readOnlyRootFilesystem": True},
        "resources": manifest.SMALL,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(label)},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
            "nodeSelector": dict(settings.node_selector),
            "tolerations": [dict(one) for one in settings.tolerations],
            "imagePullSecrets": [{"name": one} for one in settings.image_pull_secrets],
        },
    }


def policy(name: str, label: Mapping[str, str]) -> dict[str, Any]:
    """Return a policy that lets nothing out of the Pods with *label*. Pure."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name},
        "spec": {"podSelector": {"matchLabels": dict(label)}, "policyTypes": ["Egress"]},
    }
