from pathlib import Path
from typing import Any

import msgspec
import pytest
from kubernetes_validate import utils as schemas

from atoll.cluster_settings import ClusterSettings
from atoll.runtime.base import ContainerSpec
from atoll.runtime.kubernetes import manifest
from atoll.settings import MIB

GIB = 1024 * MIB

VERSIONS = ("1.28", "1.29", "1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37")
FULL = ClusterSettings(
    image_pull_secrets=("registry",),
    runtime_class="gvisor",
    node_selector={"pool": "sandboxes"},
    tolerations=(
        {"key": "sandboxes", "operator": "Exists", "effect": "NoSchedule"},
        {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
    ),
    storage_class="fast",
    runtime_classes={"kata": "kata-qemu"},
    user_namespaces=True,
)


def spec(**changes: Any) -> ContainerSpec:
    base = ContainerSpec(
        host_ref="abcd1234-0123456789ab",
        generation=3,
        identity="abcd1234-ffeeddccbbaa",
        hostname="my-box",
        image="docker.io/atoll/base:latest",
        first=True,
        rootfs=Path("/"),
        run_dir=Path("/run/box"),
        netns=None,
        id_base=0,
        id_count=1,
        memory=GIB,
        cpu=0.5,
        disk=2 * GIB,
        pids=100,
    )
    return msgspec.structs.replace(base, **changes)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("settings", [ClusterSettings(), FULL, ClusterSettings(persist="")])
def test_everything_made_is_valid_in_every_supported_version(
    version: str, settings: ClusterSettings
) -> None:
    for made in (
        manifest.pod(spec(), "abcd1234", settings),
        manifest.claim("layer", GIB, "abcd1234", settings),
        manifest.secret("box", "{}", "abcd1234"),
    ):
        schemas.validate(made, version, strict=True)


def test_a_misspelt_field_would_be_found() -> None:
    made = manifest.pod(spec(), "abcd1234", ClusterSettings())
    made["spec"]["containers"][0]["securityContext"]["privilegd"] = False
    with pytest.raises(schemas.ValidationError):
        schemas.validate(made, VERSIONS[-1], strict=True)


def test_nothing_in_a_pod_can_gain_privileges() -> None:
    made = manifest.pod(spec(), "abcd1234", ClusterSettings())["spec"]
    assert made["automountServiceAccountToken"] is False
    assert made["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in [*made["initContainers"], *made["containers"]]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["privileged"] is False
        assert context["capabilities"]["drop"] == ["ALL"]
        assert "SYS_ADMIN" not in context["capabilities"]["add"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & made.keys()


def test_the_agent_holds_one_capability_more_than_commands() -> None:
    """That it lacks one is what keeps root inside from tracing it."""
    made = manifest.pod(spec(), "abcd1234", ClusterSettings())["spec"]["containers"][0]
    added = set(made["securityContext"]["capabilities"]["add"])
    assert added - set(manifest.CAPABILITIES) == {manifest.AGENT_CAPABILITY}


def test_the_agents_interpreter_is_read_only_for_the_sandbox() -> None:
    made = manifest.pod(spec(), "abcd1234", ClusterSettings())["spec"]["containers"][0]
    (mount,) = [one for one in made["volumeMounts"] if one["name"] == "agent"]
    assert mount["readOnly"] is True


def test_limits_are_those_of_the_instance_type_and_requests_a_part_of_them() -> None:
    settings = ClusterSettings(request_ratio=0.5, agent_memory_mib=0)
    made = manifest.pod(spec(), "abcd1234", settings)["spec"]["containers"][0]["resources"]
    disk = "ephemeral-storage"
    assert made["limits"] == {"cpu": "500m", "memory": str(GIB), disk: str(2 * GIB)}
    assert made["requests"] == {"cpu": "250m", "memory": str(GIB // 2), disk: str(GIB)}


def test_the_memory_of_the_agent_is_not_the_users() -> None:
    """A Pod's limit counts both: without more of it, a command had less than its instance type says."""
    settings = ClusterSettings(request_ratio=0.5, agent_memory_mib=64)
    made = manifest.pod(spec(), "abcd1234", settings)["spec"]["containers"][0]["resources"]
    assert made["limits"]["memory"] == str(GIB + 64 * MIB)
    assert made["requests"]["memory"] == str((GIB + 64 * MIB) // 2)


def test_only_a_first_start_fills_the_files_that_outlive_it() -> None:
    """A wake that did would write the image's files over the user's."""
    first = manifest.pod(spec(), "abcd1234", ClusterSettings())["spec"]
    later = manifest.pod(spec(first=False), "abcd1234", ClusterSettings())["spec"]
    assert [one["name"] for one in first["initContainers"]] == ["agent", "files"]
    assert [one["name"] for one in later["initContainers"]] == ["agent"]
    assert first["volumes"] == later["volumes"]


def test_the_configuration_of_the_agent_is_in_no_pod() -> None:
    """Who may read Pods may not use agents."""
    made = manifest.pod(spec(), "abcd1234", ClusterSettings())["spec"]["containers"][0]
    assert [one["name"] for one in made["env"]] == [manifest.CONFIG]
    assert "value" not in made["env"][0]


BASELINE = {
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD",
    "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}  # fmt: skip
"""What the Pod Security Standard `baseline` lets a container add."""


def test_a_pod_is_within_the_security_standard_baseline() -> None:
    """Where a namespace enforces it, sandboxes run all the same."""
    made = manifest.pod(spec(), "abcd1234", FULL)["spec"]
    for container in [*made["initContainers"], *made["containers"]]:
        assert set(container["securityContext"]["capabilities"]["add"]) <= BASELINE
        assert not any("hostPort" in port for port in container.get("ports", ()))
    assert not any("hostPath" in volume for volume in made["volumes"])
    assert not {"hostNetwork", "hostPID", "hostIPC"} & made.keys()


def test_what_brings_the_agent_writes_to_its_volume_only() -> None:
    bring = manifest.pod(spec(), "abcd1234", ClusterSettings())["spec"]["initContainers"][0]
    assert bring["securityContext"]["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize(
    ("named", "found"), [("kata", "kata-qemu"), ("", "gvisor"), ("kubernetes", "gvisor")]
)
def test_the_runtime_that_is_asked_for_is_a_runtime_class(named: str, found: str) -> None:
    made = manifest.pod(spec(runtime=named), "abcd1234", FULL)["spec"]
    assert made["runtimeClassName"] == found


def test_where_nothing_is_asked_for_nothing_newer_than_the_oldest_cluster_is_sent() -> None:
    made = manifest.pod(spec(), "abcd1234", ClusterSettings())["spec"]
    assert not {"runtimeClassName", "hostUsers"} & made.keys()
    assert manifest.pod(spec(), "abcd1234", FULL)["spec"]["hostUsers"] is False


def test_pods_go_where_the_settings_say_and_spread_over_nodes() -> None:
    made = manifest.pod(spec(), "abcd1234", FULL)["spec"]
    assert made["nodeSelector"] == {"pool": "sandboxes"}
    assert made["tolerations"][1]["tolerationSeconds"] == 30
    assert made["imagePullSecrets"] == [{"name": "registry"}]
    (spread,) = made["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    assert spread["labelSelector"]["matchLabels"] == manifest.labels("abcd1234")
