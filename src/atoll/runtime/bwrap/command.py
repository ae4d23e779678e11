"""ContainerSpec → command line of bubblewrap. Pure: what isolates a sandbox of level `bwrap`.

The program is started by `atoll.runtime.bwrap.launcher` as root of a user namespace that has one
user, the engine's own, with the root of the sandbox mounted there, in the network namespace that the
sandbox was given if it was given one; it makes all other namespaces.
Capabilities, filter, masked paths and the agent's command line are those of level `container`.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from atoll.runtime.base import ContainerSpec
from atoll.runtime.oci import bundle

LISTENER, CONFIG, FILTER, INFO, PLAN, EVENTS, PROCS, REFUSED = range(3, 11)
"""Descriptors that the launcher inherits: bubblewrap takes FILTER and INFO, the launcher PLAN, the agent
the others; the last two where there is a control group."""

_CPU: Final = "/sys/devices/system/cpu"
_SMALL: Final = str(64 << 10)  # bytes of a file system that holds mount points only


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of the host that a command line depends on."""

    program: Path
    agent_dir: Path
    loader: str  # file name of the dynamic loader in it
    nofile: int  # hard limit of the engine
    masked: tuple[str, ...]  # of `bundle.MASKED_PATHS`: those that are here; folders end with /
    read_only: tuple[str, ...]  # of `bundle.READ_ONLY_PATHS`: those that are here


def present(proc: Path = Path("/proc")) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the paths to mask and those to make read-only that this kernel has."""

    def here(path: str) -> Path:
        return proc / path.removeprefix("/proc/")

    masked = [
        path + "/" * here(path).is_dir() for path in bundle.MASKED_PATHS if here(path).exists()
    ]
    return tuple(masked), tuple(path for path in bundle.READ_ONLY_PATHS if here(path).exists())


def argv(spec: ContainerSpec, host: Host) -> list[str]:
    """Return the command line; numbers of descriptors are those of this module."""
    capabilities = sorted(bundle.COMMAND_CAPABILITIES + bundle.AGENT_CAPABILITIES)
    return [
        str(host.program),
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup"),
        *(() if spec.netns else ("--unshare-net",)),
        *("--hostname", spec.hostname, "--as-pid-1", "--cap-drop", "ALL"),
        *_each("--cap-add", capabilities),
        *("--bind", str(spec.rootfs), "/"),
        *_system(spec, host),
        *_given(spec),
        *("--clearenv", "--setenv", "HOME", "/", "--chdir", "/"),
        *("--seccomp", str(FILTER), "--info-fd", str(INFO), "--"),
        *bundle.agent_argv(host.loader, host.nofile),
    ]


def targets(spec: ContainerSpec) -> dict[str, bool]:
    """Return what is mounted over the image's own: path inside → whether it is a directory."""
    given = {mount.target: mount.source.is_dir() for mount in spec.mounts}
    return dict.fromkeys(bundle.identity_files(spec), False) | given


def _system(spec: ContainerSpec, host: Host) -> list[str]:
    return [
        *("--proc", "/proc"),
        *_read_only((path, path) for path in host.read_only),
        *_masks(host.masked),
        *("--dev", "/dev", "--perms", "1777", "--size", str(spec.memory), "--tmpfs", "/dev/shm"),
        *("--mqueue", "/dev/mqueue"),
        *_read_only([(str(host.agent_dir), bundle.AGENT_DIR)]),
        *("--remount-ro", "/dev"),
        *("--size", _SMALL, "--tmpfs", "/sys", "--ro-bind", _CPU, _CPU, "--remount-ro", "/sys"),
    ]


def _masks(paths: Iterable[str]) -> list[str]:
    found = []
    for path in paths:
        if path.endswith("/"):
            folder = path.rstrip("/")
            found += ["--size", _SMALL, "--tmpfs", folder, "--remount-ro", folder]
        else:
            found += ["--dev-bind", "/dev/null", path]
    return found


def _given(spec: ContainerSpec) -> list[str]:
    identity = [(str(bundle.identity_source(spec, t)), t) for t in bundle.identity_files(spec)]
    found = _read_only(identity)
    for mount in spec.mounts:
        verb = "--ro-bind" if mount.read_only else "--bind"
        found += [verb, str(mount.source), mount.target]
    return found


def _read_only(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [part for source, target in pairs for part in ("--ro-bind", source, target)]


def _each(option: str, values: Iterable[str]) -> list[str]:
    return [part for value in values for part in (option, value)]
