"""ContainerSpec → what runsc is told: ``config.json``, the agent's start, the command line. Pure.

The same agent as at level ``container``, with these differences, all because the kernel inside is
gVisor's own:

* No seccomp list, masked paths or bound /sys: none of the host's system calls, /proc or /sys is there.
* No user namespace: runsc's process for files (the gofer) would not get to what the engine binds.
  The root is mounted with the ids of the image instead; the process that runs the sandbox's code has
  no ids of the host at all.
* Descriptors do not travel but for the standard streams. The agent reads its configuration from
  standard input and listens on the sandbox's address, where it asks for the token of this start.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from atoll.runtime.base import ContainerSpec
from atoll.runtime.configuration import configuration
from atoll.runtime.oci import bundle
from atoll.runtime.oci.bundle import AGENT_DIR, Host
from atoll.runtime.oci.cgroup_files import Limits
from atoll.settings import MIB
from atoll.wire.agent import AGENT_PORT, MAX_RUNNING

_TAKE_CONFIG: Final = (
    "import os; os.dup2(0, 4); n = os.open('/dev/null', os.O_RDONLY); os.dup2(n, 0); os.close(n); "
)
"""Before all else: standard input becomes the descriptor that the agent reads."""

_LAUNCH: Final = (
    'while [ "$1" != -- ]; do echo 0 > "$1" || exit 1; shift; done; shift; '
    'mount -t tmpfs -o ro none /proc/sys/net && exec "$@" <&3 3<&-'
)
"""Join the sandbox's cgroups, hide a file, and become runsc.

runsc of 2022 takes a network namespace for the host's own where /proc/sys/net/core/rmem_default
exists, and refuses to use it; since Linux 6.x that file is in every namespace (seen on 6.18).
"""

_BASE: Final = Limits(memory=64 * MIB, cpu=0, pids=128)
"""What gVisor and the agent have before the first command: 54 MB, 104 threads of the host (ptrace)."""

_COMMAND: Final = Limits(memory=24 * MIB, cpu=0, pids=32)
"""Room for each: 18 MB with its supervisor and shell and 14 to 22 threads were measured with 20 to 50
that sleep. The rest is for what they do."""

_INERT = ("nosuid", "noexec", "nodev")


def config(spec: ContainerSpec, host: Host) -> dict[str, Any]:
    """Return the configuration of the container."""
    capabilities = sorted(bundle.COMMAND_CAPABILITIES + bundle.AGENT_CAPABILITIES)
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": agent_argv(host),
            "env": ["HOME=/"],
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), capabilities),
            "noNewPrivileges": True,
        },
        "root": {"path": str(spec.rootfs)},
        "hostname": spec.hostname,
        "mounts": _mounts(spec, host),
        "linux": {"namespaces": _namespaces(spec)},
    }


def agent_argv(host: Host) -> list[str]:
    """Return the command line of pid 1."""
    *argv, program = bundle.agent_argv(host.loader, host.nofile)
    return [*argv, _TAKE_CONFIG + program]


def at_once(limits: Limits) -> int:
    """Return how many commands may run at once.

    What they take of the host is gVisor's too, and without it all of the sandbox ends: it panics
    when it gets no thread, and is killed when it has no memory.
    """
    by_memory = (limits.memory - _BASE.memory) // _COMMAND.memory
    by_threads = (limits.pids - _BASE.pids) // _COMMAND.pids
    return max(1, min(MAX_RUNNING, by_memory, by_threads))


def agent_config(spec: ContainerSpec, token: str, limits: Limits) -> bytes:
    """Return the agent's standard input; see `atoll.agent.config`."""
    address = {"host": spec.address, "port": AGENT_PORT}
    own = {"tcp": address, "token": token, "subreapers": False, "commands": at_once(limits)}
    return json.dumps(configuration(spec, **own)).encode()


def _namespaces(spec: ContainerSpec) -> list[dict[str, str]]:
    network = {"type": "network", "path": str(spec.netns)} if spec.netns else {"type": "network"}
    return [*({"type": kind} for kind in ("pid", "mount", "ipc", "uts")), network]


def _mounts(spec: ContainerSpec, host: Host) -> list[dict[str, Any]]:
    system = [
        _mount("proc", "/proc", "proc", *_INERT),
        _mount("tmpfs", "/dev", "tmpfs", "nosuid", "mode=755"),
        _mount("devpts", "/dev/pts", "devpts", "nosuid", "noexec"),
        _mount("tmpfs", "/dev/shm", "tmpfs", *_INERT, "mode=1777", f"size={spec.memory}"),
        _mount("sysfs", "/sys", "sysfs", *_INERT, "ro"),
        _bind(host.agent_dir, AGENT_DIR, "nosuid", "nodev", "ro"),
    ]
    identity = [
        _bind(bundle.identity_source(spec, target), target, *_INERT, "ro")
        for target in bundle.identity_files(spec)
    ]
    given = [
        _bind(m.source, m.target, "nosuid", "nodev", "ro" if m.read_only else "rw")
        for m in spec.mounts
    ]
    return system + identity + given


def _mount(source: str, target: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": target, "type": kind, "source": source, "options": list(options)}


def _bind(source: Path, target: str, *options: str) -> dict[str, Any]:
    return _mount(str(source), target, "bind", "bind", "private", *options)


def run_argv(
    program: Path,
    platform: str,
    *,
    groups: Sequence[Path],
    options: Mapping[str, str | Path],
    bundle_dir: Path,
    pid_file: Path,
    name: str,
) -> list[str]:
    """Return the command line that creates and starts a container and then exits.

    Its descriptor 3 becomes the standard input of pid 1.

    Args:
        program: runsc.
        platform: how it intercepts system calls.
        groups: files to write "0" to, so that all of the sandbox is in its cgroups.
        options: of runsc beside those that every sandbox has.
        bundle_dir: directory with config.json.
        pid_file: where it writes the process id of the sandbox.
        name: the container's.
    """
    # Limits are set from outside, on all of it: runsc's own cgroups know v1 and v2, not both.
    told = {"platform": platform, "ignore-cgroups": "true", "overlay2": "none", **options}
    flags = [f"--{name}={value}" for name, value in told.items()]
    verb = ["run", "--detach", "--bundle", bundle_dir, "--pid-file", pid_file, name]
    enter = ["/usr/bin/unshare", "--mount", "--propagation", "slave", "sh", "-c", _LAUNCH, "sh"]
    return [str(part) for part in (*enter, *groups, "--", program, *flags, *verb)]
