import json
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pytest

from atoll.agent import confine
from atoll.runtime.base import ContainerSpec, Mount
from atoll.runtime.oci import bundle

GOLDEN = Path(__file__).parent / "fixtures" / "config.json"

HOST = bundle.Host(
    machine="x86_64",
    nofile=1_000_000,
    agent_dir=Path("/cache/agent/abc"),
    loader="ld-linux-x86-64.so.2",
    agent=bundle.AgentLimits(memory=256 << 20, pids=1024),
)
SPEC = ContainerSpec(
    host_ref="e1-abc",
    generation=3,
    identity="e1-layer",
    hostname="my-box",
    rootfs=Path("/state/run/e1-abc/rootfs"),
    run_dir=Path("/state/run/e1-abc"),
    netns=Path("/run/netns/atoll-1"),
    id_base=0x1000_0000,
    id_count=65_536,
    memory=256 << 20,
    cpu=0.5,
    pids=256,
    env={"CALLER_SECRET": "s3cret"},
    mounts=(
        Mount(source=Path("/state/run/e1-abc/hosts"), target="/etc/hosts"),
        Mount(source=Path("/data"), target="/data", read_only=False),
    ),
)
CGROUP = PurePosixPath("/atoll/e1/e1-abc/agent")
USERNS = Path("/proc/7/fd/9")


def made(**changes: Any) -> dict[str, Any]:
    return bundle.config(msgspec.structs.replace(SPEC, **changes), HOST, CGROUP, USERNS)


def mount_at(target: str, config: dict[str, Any] | None = None) -> dict[str, Any]:
    return next(m for m in (config or made())["mounts"] if m["destination"] == target)


def test_the_configuration_is_the_reviewed_one() -> None:
    """Every change of what isolates a sandbox shows up as a change of the golden file."""
    assert json.loads(json.dumps(made())) == json.loads(GOLDEN.read_text())


def test_all_seven_namespaces_are_the_sandboxes_own() -> None:
    """The network given is the one that the runtime is started in."""
    kinds = {n["type"]: n.get("path") for n in made()["linux"]["namespaces"]}
    assert kinds == {
        "user": "/proc/7/fd/9", "pid": None, "mount": None, "ipc": None, "uts": None,
        "cgroup": None,
    }  # fmt: skip


def test_without_a_network_namespace_a_fresh_one_is_made() -> None:
    assert {"type": "network"} in made(netns=None)["linux"]["namespaces"]


def test_root_inside_is_nobody_outside() -> None:
    linux = made(id_base=500_000, id_count=1_000)["linux"]
    mapping = [{"containerID": 0, "hostID": 500_000, "size": 1_000}]
    assert linux["uidMappings"] == linux["gidMappings"] == mapping


def test_the_agent_has_exactly_two_capabilities_more_than_commands() -> None:
    """That difference is what keeps root inside from tracing pid 1."""
    capabilities = made()["process"]["capabilities"]
    commands = {f"CAP_{name}" for name in confine.CAPABILITIES}
    assert set(bundle.COMMAND_CAPABILITIES) == commands
    for kind in ("bounding", "effective", "permitted"):
        assert set(capabilities[kind]) - commands == {"CAP_SYS_ADMIN", "CAP_SYS_PTRACE"}
    assert capabilities["inheritable"] == capabilities["ambient"] == []


def test_no_variable_reaches_the_agents_environment() -> None:
    """A loader or interpreter variable of an image must not steer pid 1."""
    assert made()["process"]["env"] == ["HOME=/"]
    assert "s3cret" not in json.dumps(made())


@pytest.mark.parametrize(
    ("here", "limits"), [(1_000_000, (65_536, 524_288)), (4_096, (4_096,) * 2)]
)
def test_descriptors_are_limited_to_what_the_host_allows(
    here: int, limits: tuple[int, int]
) -> None:
    host = msgspec.structs.replace(HOST, nofile=here)
    code = bundle.config(SPEC, host, CGROUP, USERNS)["process"]["args"][-1]
    assert f"setrlimit(r.RLIMIT_NOFILE, {limits})" in code
    assert code.endswith(bundle.START)


def test_given_mounts_are_read_only_unless_said_otherwise() -> None:
    assert "ro" in mount_at("/etc/hosts")["options"]
    assert "rw" in mount_at("/data")["options"]
    assert {"nosuid", "nodev"} <= set(mount_at("/data")["options"])


def test_nothing_of_sysfs_but_the_processors_is_there() -> None:
    assert (mount_at("/sys")["type"], "ro" in mount_at("/sys")["options"]) == ("tmpfs", True)
    below = [m["destination"] for m in made()["mounts"] if m["destination"].startswith("/sys/")]
    assert below == ["/sys/devices/system/cpu"]
    assert "ro" in mount_at(below[0])["options"]


def test_the_agents_interpreter_cannot_be_changed_from_inside() -> None:
    options = mount_at(bundle.AGENT_DIR)["options"]
    assert {"ro", "nosuid", "nodev"} <= set(options)


def test_the_machine_id_is_the_same_at_every_start_of_one_sandbox_only() -> None:
    def told(**changes: Any) -> str:
        files = bundle.identity_files(msgspec.structs.replace(SPEC, **changes))
        return files["/etc/machine-id"].strip()

    one = told()
    assert one == told(host_ref="e1-later", generation=4) != told(identity="e1-other")
    assert len(one) == 32
    assert set(one) <= set("0123456789abcdef")


@pytest.mark.parametrize("target", ["/etc/machine-id", "/etc/hostname"])
def test_identity_files_are_bound_read_only_from_the_run_directory(target: str) -> None:
    mount = mount_at(target)
    assert mount["source"] == f"/state/run/e1-abc/{Path(target).name}"
    assert "ro" in mount["options"]
