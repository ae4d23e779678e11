import json
from pathlib import Path

from atoll.runtime.base import ContainerSpec, Mount
from atoll.runtime.gvisor import config
from atoll.runtime.oci.bundle import AgentLimits, Host
from atoll.runtime.oci.cgroup_files import Limits
from atoll.settings import MIB
from atoll.wire.agent import AGENT_PORT

HOST = Host(
    machine="x86_64", nofile=4096, agent_dir=Path("/agent"), loader="ld.so",
    agent=AgentLimits(memory=1, pids=1),
)  # fmt: skip
SPEC = ContainerSpec(
    host_ref="e-1", generation=3, identity="i", hostname="box", rootfs=Path("/root-of-box"),
    run_dir=Path("/run/e-1"), netns=Path("/run/netns/atl1"), address="10.0.0.2", id_base=0,
    id_count=65_536, memory=1 << 28, cpu=1.0, pids=100, env={"A": "b"},
    mounts=(Mount(source=Path("/s"), target="/etc/hosts"),),
)  # fmt: skip

LIMITS = Limits(memory=1024 * MIB, cpu=0.5, pids=4096)


def test_it_runs_in_the_network_that_was_made_for_it() -> None:
    namespaces = config.config(SPEC, HOST)["linux"]["namespaces"]
    assert {"type": "network", "path": "/run/netns/atl1"} in namespaces
    assert {"pid", "mount", "ipc", "uts"} <= {one["type"] for one in namespaces}


def test_nothing_of_the_hosts_system_is_mounted() -> None:
    mounts = config.config(SPEC, HOST)["mounts"]
    sources = {one["source"] for one in mounts if one["type"] == "bind"}
    assert sources == {"/agent", "/run/e-1/machine-id", "/run/e-1/hostname", "/s"}
    assert all("ro" in one["options"] for one in mounts if one["type"] == "bind")


def test_commands_cannot_get_what_the_agent_has() -> None:
    """The capabilities beyond those of commands keep root inside from tracing the agent."""
    process = config.config(SPEC, HOST)["process"]
    assert "CAP_SYS_PTRACE" in process["capabilities"]["bounding"]
    assert process["noNewPrivileges"]
    assert "inheritable" not in process["capabilities"]


def test_the_agent_asks_for_a_token_at_the_sandboxs_own_address_only() -> None:
    told = json.loads(config.agent_config(SPEC, "secret", LIMITS))
    assert told["tcp"] == {"host": "10.0.0.2", "port": AGENT_PORT}
    assert (told["token"], told["generation"], told["env"]) == ("secret", 3, {"A": "b"})


def test_as_many_commands_run_at_once_as_memory_and_threads_are_for() -> None:
    assert config.at_once(LIMITS) == 40
    assert json.loads(config.agent_config(SPEC, "s", LIMITS))["commands"] == 40
    assert config.at_once(LIMITS._replace(memory=64 << 30)) == 124
    assert config.at_once(LIMITS._replace(memory=64 << 30, pids=1 << 20)) == 256
    assert config.at_once(LIMITS._replace(pids=8)) == 1


def test_the_token_is_nowhere_but_in_the_agents_standard_input() -> None:
    assert "secret" not in json.dumps(config.config(SPEC, HOST))


def test_everything_runs_in_the_groups_of_the_sandbox() -> None:
    argv = config.run_argv(
        Path("/usr/bin/runsc"), "ptrace", groups=[Path("/cg/a/tasks"), Path("/cg/b/tasks")],
        options={"root": Path("/state")}, bundle_dir=Path("/b"), pid_file=Path("/p"), name="n",
    )  # fmt: skip
    split = argv.index("--")
    assert argv[split - 2 : split] == ["/cg/a/tasks", "/cg/b/tasks"]
    assert argv[split + 1] == "/usr/bin/runsc"
    assert {"--platform=ptrace", "--ignore-cgroups=true", "--root=/state"} <= set(argv[split:])
    assert argv[-1] == "n"
