"""ContainerSpec → OCI ``config.json``. Pure: everything that isolates a sandbox is decided here.

The agent is pid 1 and starts as root inside, its environment is fixed. It holds the capabilities
of commands plus two that no command gets: that difference is what keeps root inside from tracing
it (measured: with equal sets it can). Neither reaches anything, because the filter of
`atoll.runtime.oci.seccomp` refuses the calls they would allow and the user namespace owns
neither the network nor any file system but its own.

There is no sysfs: a sandbox must not own its network namespace, and without that sysfs cannot be
mounted. Programs look up processors there, so that one directory is bound read-only into an empty
read-only tmpfs. /proc is mounted whole, with what tells about or changes the host masked.
"""

from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from atoll.runtime.base import ContainerSpec
from atoll.runtime.oci import seccomp

COMMAND_CAPABILITIES = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",  # packages that carry file capabilities (ping)
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
)
"""What package managers and services need as root. Not MKNOD and NET_RAW, which containers usually
have: a user namespace can make no device, and none inside owns the network."""

AGENT_CAPABILITIES = ("CAP_SYS_ADMIN", "CAP_SYS_PTRACE")
"""Of the agent and its supervisors only."""

AGENT_DIR = "/dev/.atoll"
"""Where the agent's interpreter is mounted: below a tmpfs, so that the layer keeps no trace."""

_OPTIONS = ("-I", "-S", "-B", "-X", "utf8")
"""No environment, no site, nothing written, UTF-8 whatever the locale."""

START = "import gc; gc.disable(); from atoll.agent.__main__ import main; gc.enable(); main()"
"""What ``python -m atoll.agent`` does, without importing runpy (3 ms) and without collecting
garbage while modules are loaded (2 of 31 ms; one file with all modules in it would save 2 more)."""

LIMITS = (
    "import resource as r; r.setrlimit(r.RLIMIT_CORE, (0, 0)); "
    "r.setrlimit(r.RLIMIT_NOFILE, ({soft}, {hard})); "
)
"""Set by pid 1 itself, before it knows anything: the runtime sets limits from outside, which takes
CAP_SYS_RESOURCE where it does not own the user namespace."""

MASKED_PATHS = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/bus/pci",
    "/proc/config.gz",
    "/proc/driver",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/slabinfo",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/vmallocinfo",
)
READ_ONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


class AgentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the agent's own cgroup. Memory in bytes."""

    memory: int
    pids: int


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of the host that a configuration depends on."""

    machine: str  # as in `os.uname`
    nofile: int  # hard limit of the engine; without CAP_SYS_RESOURCE nothing can go above
    agent_dir: Path  # built by `agent_bundle`
    loader: str  # file name of the dynamic loader in it
    agent: AgentLimits


def config(
    spec: ContainerSpec, host: Host, cgroups_path: PurePosixPath, userns: Path
) -> dict[str, Any]:
    """Return the configuration of the container.

    Args:
        spec: what to start.
        host: what it runs on.
        cgroups_path: of the agent, absolute within each cgroup hierarchy.
        userns: the sandbox's user namespace, owned by its own root; see README.md.
    """
    return {
        "ociVersion": "1.0.2",
        "process": _process(host),
        "root": {"path": str(spec.rootfs)},
        "hostname": spec.hostname,
        "mounts": _mounts(spec, host),
        "linux": {
            "uidMappings": [_mapping(spec)],
            "gidMappings": [_mapping(spec)],
            "namespaces": _namespaces(spec.netns, userns),
            "cgroupsPath": str(cgroups_path),
            "resources": _agent_resources(host.agent),
            "maskedPaths": list(MASKED_PATHS),
            "readonlyPaths": list(READ_ONLY_PATHS),
            "rootfsPropagation": "rprivate",
            "seccomp": seccomp.profile(host.machine),
        },
    }


def machine_id(identity: str) -> str:
    """Return the /etc/machine-id of the sandbox of this *identity*."""
    return sha256(b"machine-id\0" + identity.encode()).hexdigest()[:32]


def identity_files(spec: ContainerSpec) -> dict[str, str]:
    """Return target → content of the files that say who this machine is.

    They are bound, never written into the rootfs: a link in there could point anywhere.
    """
    return {
        "/etc/machine-id": machine_id(spec.identity) + "\n",
        "/etc/hostname": spec.hostname + "\n",
    }


def identity_source(spec: ContainerSpec, target: str) -> Path:
    """Return where the driver writes the identity file for *target*."""
    return spec.run_dir / PurePosixPath(target).name


def agent_argv(loader: str, nofile: int) -> list[str]:
    """Return the command line of pid 1.

    Args:
        loader: file name of the dynamic loader in the agent's directory.
        nofile: hard limit of open files.
    """
    library = f"{AGENT_DIR}/lib"
    start = [f"{library}/{loader}", "--inhibit-cache", "--library-path", library]
    nofile = min(nofile, 1 << 19)
    limits = LIMITS.format(soft=min(nofile, 1 << 16), hard=nofile)
    return [*start, f"{AGENT_DIR}/bin/python", *_OPTIONS, "-c", limits + START]


def _process(host: Host) -> dict[str, Any]:
    capabilities = sorted(COMMAND_CAPABILITIES + AGENT_CAPABILITIES)
    return {
        "user": {"uid": 0, "gid": 0, "umask": 0o022},
        "args": agent_argv(host.loader, host.nofile),
        # Otherwise runc takes it from the image's passwd file.
        "env": ["HOME=/"],
        "cwd": "/",
        "capabilities": {
            "bounding": capabilities,
            "effective": capabilities,
            "permitted": capabilities,
            "inheritable": [],
            "ambient": [],
        },
        "noNewPrivileges": True,
    }


def _mapping(spec: ContainerSpec) -> dict[str, int]:
    return {"containerID": 0, "hostID": spec.id_base, "size": spec.id_count}


def _namespaces(netns: Path | None, userns: Path) -> list[dict[str, str]]:
    """A given network is not among them: the runtime is started in it (`cli.entering`).

    It enters the user namespace first, from where the host's network cannot be entered any more.
    """
    fresh = ["pid", "mount", "ipc", "uts", "cgroup", *([] if netns else ["network"])]
    return [{"type": "user", "path": str(userns)}, *({"type": kind} for kind in fresh)]


def _agent_resources(limits: AgentLimits) -> dict[str, Any]:
    return {
        "devices": [{"allow": False, "access": "rwm"}],
        "memory": {"limit": limits.memory},
        "pids": {"limit": limits.pids},
    }


def _mounts(spec: ContainerSpec, host: Host) -> list[dict[str, Any]]:
    system = [
        _mount("proc", "/proc", "proc", "nosuid", "noexec", "nodev"),
        # Filled by the runtime: null, zero, full, random, urandom, tty, and the usual links.
        _mount("tmpfs", "/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=64k"),
        _mount("devpts", "/dev/pts", "devpts", "nosuid", "noexec", *_DEVPTS),
        _mount("tmpfs", "/dev/shm", "tmpfs", *_INERT, "mode=1777", f"size={spec.memory}"),
        _mount("mqueue", "/dev/mqueue", "mqueue", *_INERT),
        _mount("tmpfs", "/sys", "tmpfs", *_INERT, "ro", "mode=755", "size=64k"),
        _bind(Path(_CPU), _CPU, *_INERT, "ro"),
        _bind(host.agent_dir, AGENT_DIR, "nosuid", "nodev", "ro"),
    ]
    identity = [
        _bind(identity_source(spec, target), target, *_INERT, "ro")
        for target in identity_files(spec)
    ]
    given = [
        _bind(m.source, m.target, "nosuid", "nodev", "ro" if m.read_only else "rw")
        for m in spec.mounts
    ]
    return system + identity + given


_CPU = "/sys/devices/system/cpu"
_INERT = ("nosuid", "noexec", "nodev")
_DEVPTS = ("newinstance", "ptmxmode=0666", "mode=0620", "gid=5", "max=256")
"""Without ``max`` one sandbox opens all terminals of the host (kernel.pty.max, 4,096)."""


def _mount(source: str, target: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": target, "type": kind, "source": source, "options": list(options)}


def _bind(source: Path, target: str, *options: str) -> dict[str, Any]:
    return _mount(str(source), target, "bind", "bind", "private", *options)
