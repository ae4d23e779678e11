"""The settings of sandboxes that are Pods: a group of `atoll.settings`. Reads nothing."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where sandboxes of level `kubernetes` run. Empty lists: nothing is asked of the cluster."""

    namespace: str = "atoll"
    """Kubernetes namespace of everything that the engine makes."""

    kubeconfig: Path | None = None
    """How the cluster is reached; None: the engine runs in it, and its service account is used."""

    replicas: bool = False
    """Whether several engines serve the namespace. Records are custom resources then, and no engine
    needs a disk that outlives it; what engines cannot share is refused."""

    failover: Literal["strict", "lease"] = "strict"
    """What happens to a sandbox whose node is cut off, where its namespace does not say: `strict`
    waits until it is known to have ended; `lease` has it end itself, and be started elsewhere."""

    lease: Annotated[int, msgspec.Meta(ge=15, le=240)] = 60
    """Seconds that a sandbox with `failover` `lease` goes on without hearing of any engine."""

    agent_image: str = "atoll/engine"
    """Image whose /opt/atoll/agent is copied into each Pod."""

    agent_port: Annotated[int, msgspec.Meta(gt=0, le=65_535)] = 7070
    """Port of the agent in each Pod."""

    pull_policy: str = "IfNotPresent"
    """Always, IfNotPresent or Never."""

    image_pull_secrets: tuple[str, ...] = ()
    """Names of Secrets with the credentials of registries."""

    runtime_class: str = ""
    """RuntimeClass of sandboxes that name no runtime; empty: the nodes' own."""

    runtime_classes: dict[str, str] = {}
    """What callers may name as `runtime` → RuntimeClass, for example ``{"gvisor": "gvisor"}``."""

    user_namespaces: bool = False
    """Whether root inside is nobody on the node (`hostUsers: false`): Kubernetes 1.33, Linux 6.3."""

    enforces_policies: bool = True
    """Whether the cluster's network enforces NetworkPolicies; `atoll doctor --cluster` finds out. With
    False none are made, and what only they can hold a sandbox to is refused."""

    engine_ranges: tuple[str, ...] = ()
    """Ranges (CIDR) of engines that run outside of the cluster; those inside are known by labels."""

    node_selector: dict[str, str] = {}
    """Labels of the nodes that sandboxes may run on."""

    tolerations: tuple[dict[str, str | int], ...] = ()
    """Taints of nodes that sandboxes tolerate."""

    persist: str = "/workspace"
    """Directory that outlives a Pod, on a volume claim; everything else is the image's again."""

    storage_class: str = ""
    """StorageClass of the claims; empty: the cluster's default."""

    request_ratio: float = 0.25
    """Part of an instance type's memory and cpu that a node must have free; the limits are whole."""

    agent_memory_mib: Annotated[int, msgspec.Meta(ge=0, le=4096)] = 64
    """MiB that a Pod's limit of memory has besides its instance type's: for the agent's own processes, which
    the node counts with the commands."""
