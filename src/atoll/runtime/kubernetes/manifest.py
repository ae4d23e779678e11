"""ContainerSpec → Pod. Pure: everything that a Pod is and may do is decided here.

The agent is the container's command. Its interpreter is brought by an init container into a volume
that the sandbox sees read-only; what it has to know is a variable of its own environment, out of a
Secret that is deleted once it answered. Commands hold less than it does (`atoll.agent.confine`), which
keeps them from reading either.

The files that outlive the Pod are on a volume claim, mounted at the path `persist`. At the first start
a second init container, of the sandbox's own image, fills it with what the image has there.

Only fields that are the same from Kubernetes 1.20 on are used, but for `hostUsers`, which an operator
asks for.
"""

from hashlib import sha256
from typing import Any, Final

from atoll.cluster_settings import ClusterSettings
from atoll.runtime.base import ContainerSpec
from atoll.settings import MIB

AGENT_DIR: Final = "/.atoll"
FILES_DIR: Final = "/.atoll-files"
CONFIG: Final = "ATOLL_AGENT"
"""Variable with the agent's configuration."""

CONTAINER: Final = "sandbox"
ENGINE_LABEL: Final = "atoll.dev/engine"
START_LABEL: Final = "atoll.dev/start"
"""Of a sandbox's Pod alone: its network policy selects it by this."""

CAPABILITIES: Final = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE",
    "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
)  # fmt: skip
"""What commands hold as root inside, as at level `container`."""

AGENT_CAPABILITY: Final = "AUDIT_WRITE"
"""Of the agent alone: who lacks one that a process has cannot trace it. This one is the least that the
Pod Security Standard `baseline` lets a Pod have besides those of commands."""

BUNDLE: Final = "/opt/atoll/agent"
_LIBRARY: Final = f"{AGENT_DIR}/lib"
PYTHON: Final = (
    f"{_LIBRARY}/loader", "--inhibit-cache", "--library-path", _LIBRARY,
    f"{AGENT_DIR}/bin/python", "-I", "-S", "-B", "-X", "utf8", "-c",
)  # fmt: skip
_RUN: Final = "from atoll.agent.pod import main; main()"
_SEED: Final = "from atoll.agent.seed import fill; fill({source!r}, {target!r})"


def labels(engine_id: str) -> dict[str, str]:
    """Return what selects everything that an engine made."""
    return {"app.kubernetes.io/managed-by": "atoll", ENGINE_LABEL: engine_id}


def selector(engine_id: str) -> str:
    """Return the label selector of everything that an engine made."""
    return ",".join(f"{name}={value}" for name, value in labels(engine_id).items())


def claim_name(layer_id: str) -> str:
    """Return the name of the volume claim that holds the files of *layer_id*."""
    return f"files-{layer_id}"


def claim(layer_id: str, size: int, engine_id: str, cluster: ClusterSettings) -> dict[str, Any]:
    """Return the claim for the files of a sandbox of *size* bytes of disk."""
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(size)}},
    }
    if cluster.storage_class:
        spec["storageClassName"] = cluster.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim_name(layer_id), "labels": labels(engine_id)},
        "spec": spec,
    }


def secret(host_ref: str, config: str, engine_id: str) -> dict[str, Any]:
    """Return the Secret with the configuration of one agent."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": host_ref, "labels": labels(engine_id)},
        "stringData": {"config": config},
    }


def pod(spec: ContainerSpec, engine_id: str, cluster: ClusterSettings) -> dict[str, Any]:
    """Return the Pod of one start; its Secret and its claim have the names that it uses."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": spec.host_ref,
            "labels": {
                **labels(engine_id),
                START_LABEL: spec.host_ref,
                "atoll.dev/identity": _digest(spec.identity),
            },
            "annotations": {"atoll.dev/generation": str(spec.generation)},
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "hostname": spec.hostname[:63].rstrip("-"),
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "initContainers": _inits(spec, cluster),
            "containers": [_sandbox(spec, cluster)],
            "volumes": _volumes(spec, cluster),
            **_placement(engine_id, cluster),
            **_isolation(spec, cluster),
        },
    }


def _inits(spec: ContainerSpec, cluster: ClusterSettings) -> list[dict[str, Any]]:
    bring = {
        "name": "agent",
        "image": cluster.agent_image,
        "imagePullPolicy": cluster.pull_policy,
        "command": ["cp", "-a", f"{BUNDLE}/.", AGENT_DIR],
        "volumeMounts": [{"name": "agent", "mountPath": AGENT_DIR}],
        "securityContext": restricted([]) | {"readOnlyRootFilesystem": True},
        "resources": SMALL,
    }
    if not (cluster.persist and spec.first):
        return [bring]
    fill = {
        "name": "files",
        "image": spec.image,
        "imagePullPolicy": cluster.pull_policy,
        "command": [*PYTHON, _SEED.format(source=cluster.persist, target=FILES_DIR)],
        "volumeMounts": [_AGENT_MOUNT, {"name": "files", "mountPath": FILES_DIR}],
        "securityContext": restricted(["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID"]),
        "resources": SMALL,
    }
    return [bring, fill]


SMALL: Final = {
    "requests": {"cpu": "10m", "memory": "32Mi"},
    "limits": {"cpu": "1", "memory": "256Mi"},
}
_AGENT_MOUNT: Final = {"name": "agent", "mountPath": AGENT_DIR, "readOnly": True}


def _sandbox(spec: ContainerSpec, cluster: ClusterSettings) -> dict[str, Any]:
    return {
        "name": CONTAINER,
        "image": spec.image,
        "imagePullPolicy": cluster.pull_policy,
        "command": [*PYTHON, _RUN],
        "env": [
            {
                "name": CONFIG,
                "valueFrom": {"secretKeyRef": {"name": spec.host_ref, "key": "config"}},
            }
        ],
        "ports": [{"name": "agent", "containerPort": cluster.agent_port}],
        "resources": {
            "limits": _size(spec.cpu, _memory(spec, cluster), spec.disk),
            "requests": _requests(spec, cluster),
        },
        "securityContext": restricted([*CAPABILITIES, AGENT_CAPABILITY]),
        "volumeMounts": [_AGENT_MOUNT, *_file_mounts(cluster)],
    }


def _memory(spec: ContainerSpec, cluster: ClusterSettings) -> int:
    return spec.memory + cluster.agent_memory_mib * MIB


def _requests(spec: ContainerSpec, cluster: ClusterSettings) -> dict[str, str]:
    part = cluster.request_ratio
    memory = round(_memory(spec, cluster) * part)
    return _size(max(0.01, spec.cpu * part), memory, round(spec.disk * part))


def _size(cores: float, memory: int, disk: int) -> dict[str, str]:
    size = {"cpu": f"{round(cores * 1000)}m", "memory": str(memory)}
    return size | {"ephemeral-storage": str(disk)} if disk else size


def restricted(added: list[str]) -> dict[str, Any]:
    """As strict as root inside can be kept."""
    return {
        "runAsUser": 0,
        "runAsGroup": 0,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": added},
    }


def _file_mounts(cluster: ClusterSettings) -> list[dict[str, Any]]:
    # Not parts of it at several paths (subPath): a kubelet binds those in its own mount namespace.
    return [{"name": "files", "mountPath": cluster.persist}] if cluster.persist else []


def _volumes(spec: ContainerSpec, cluster: ClusterSettings) -> list[dict[str, Any]]:
    agent: dict[str, Any] = {"name": "agent", "emptyDir": {"sizeLimit": "256Mi"}}
    if not cluster.persist:
        return [agent]
    named = {"claimName": claim_name(spec.identity)}
    return [agent, {"name": "files", "persistentVolumeClaim": named}]


def _placement(engine_id: str, cluster: ClusterSettings) -> dict[str, Any]:
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels(engine_id)},
    }
    return {
        "topologySpreadConstraints": [spread],
        "nodeSelector": dict(cluster.node_selector),
        "tolerations": [dict(one) for one in cluster.tolerations],
        "imagePullSecrets": [{"name": name} for name in cluster.image_pull_secrets],
    }


def _isolation(spec: ContainerSpec, cluster: ClusterSettings) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if named := cluster.runtime_classes.get(spec.runtime, cluster.runtime_class):
        found["runtimeClassName"] = named
    if cluster.user_namespaces:
        found["hostUsers"] = False
    return found


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:40]
