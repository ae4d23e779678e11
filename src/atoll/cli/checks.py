"""What `atoll doctor` concludes from what it found. Pure.

A check that fails says what to do; one that is only worth knowing is a warning. What is in force is
told, not what might be.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from atoll.wire.base import Result

KERNEL = (5, 19)
"""First kernel whose overlay takes idmapped layers."""


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Check(Result, frozen=True, kw_only=True):
    """One check: what it is about, how it ended, what was seen, what to do."""

    name: str
    verdict: Verdict
    seen: str
    advice: str | None = None


class Report(Result, frozen=True, kw_only=True):
    """All checks. `isolation` is the level that sandboxes really get here, None: they cannot run."""

    isolation: str | None
    runtime: str | None
    checks: list[Check] = msgspec.field(default_factory=list)


class Tool(NamedTuple):
    """A program of the host: which Debian package has it, what for, and whether all need it."""

    package: str
    purpose: str
    needed: bool = True


TOOLS: Mapping[str, Tool] = {
    "nft": Tool("nftables", "the packet filter of sandboxes"),
    "nsenter": Tool("util-linux", "starting in the network of a sandbox"),
    "mkfs.btrfs": Tool("btrfs-progs", "the layer store", needed=False),
    "mkfs.ext4": Tool("e2fsprogs", "layers where the kernel has no btrfs", needed=False),
    "mmdebstrap": Tool("mmdebstrap", "building the base image", needed=False),
    "buildah": Tool("buildah", "building Dockerfiles", needed=False),
    "s3fs": Tool("s3fs", "mounting buckets", needed=False),
    "rclone": Tool("rclone", "mounting buckets of Azure and local ones", needed=False),
    "bwrap": Tool("bubblewrap", "mounting buckets", needed=False),
    "skopeo": Tool("skopeo", "pulling images", needed=False),
}


def tool(name: str, path: str | None) -> Check:
    """Judge whether a program is installed."""
    known = TOOLS[name]
    if path:
        return Check(name=name, verdict=Verdict.OK, seen=path)
    verdict = Verdict.FAILED if known.needed else Verdict.WARNING
    return Check(
        name=name,
        verdict=verdict,
        seen=f"not installed; it is for {known.purpose}",
        advice=f"apt-get install {known.package}",
    )


def root(uid: int) -> Check:
    """Judge the user."""
    if uid == 0:
        return Check(name="root", verdict=Verdict.OK, seen="running as root")
    return Check(
        name="root",
        verdict=Verdict.FAILED,
        seen=f"running as uid {uid}; level container needs root",
        advice="run the engine (and this check) as root; clients need not be root",
    )


def kernel(release: str) -> Check:
    """Judge the kernel."""
    numbers = tuple(
        int(part) for part in release.split("-", maxsplit=1)[0].split(".")[:2] if part.isdigit()
    )
    if numbers >= KERNEL:
        return Check(name="kernel", verdict=Verdict.OK, seen=release)
    return Check(
        name="kernel",
        verdict=Verdict.FAILED,
        seen=f"{release}; overlay on idmapped layers came with {KERNEL[0]}.{KERNEL[1]}",
        advice="use a newer kernel (Debian 12 has 6.1)",
    )


def user_namespaces(limit: int | None) -> Check:
    """Judge the host's limit of user namespaces, None where the kernel has none."""
    if limit:
        return Check(name="user namespaces", verdict=Verdict.OK, seen=f"up to {limit}")
    return Check(
        name="user namespaces",
        verdict=Verdict.FAILED,
        seen="the kernel has none" if limit is None else "switched off",
        advice="sysctl -w user.max_user_namespaces=10000",
    )


def cgroups(mode: str, controllers: Sequence[str]) -> Check:
    """Judge the cgroup hierarchies by the controllers found in any of them."""
    missing = sorted({"cpu", "memory", "pids", "freezer"} - set(controllers))
    if mode == "v2":
        missing = [name for name in missing if name != "freezer"]  # part of every group there
    if not missing:
        return Check(name="cgroups", verdict=Verdict.OK, seen=mode)
    return Check(
        name="cgroups",
        verdict=Verdict.FAILED,
        seen=f"{mode}, without {', '.join(missing)}: limits could not be enforced",
        advice="enable these controllers on the kernel's command line",
    )


def runtime(name: str | None, reason: str, *, needed: bool = True) -> Check:
    """Judge the choice of the OCI runtime; *reason* is why it was chosen, or why there is none.

    It is *needed* where level container is the default.
    """
    if name:
        return Check(name="OCI runtime", verdict=Verdict.OK, seen=f"{name}: {reason}")
    return Check(
        name="OCI runtime",
        verdict=Verdict.FAILED if needed else Verdict.WARNING,
        seen=reason,
        advice="apt-get install runc (or crun where cgroups are v2 only)",
    )


def gvisor(platform: str | None, reason: str, *, old: bool = False, needed: bool = False) -> Check:
    """Judge the level gvisor, *needed* where it is the default; *reason*: how it works, or why not."""
    if platform:
        return Check(
            name="level gvisor",
            verdict=Verdict.WARNING if old else Verdict.OK,
            seen=f"runsc: {reason}",
            advice="install the runsc of gvisor.dev" if old else None,
        )
    return Check(
        name="level gvisor",
        verdict=Verdict.FAILED if needed else Verdict.WARNING,
        seen=f"{reason}; it is for code that shall not reach the host's kernel",
        advice="apt-get install runsc",
    )


def storage(kind: str | None, problem: str | None) -> Check:
    """Judge the trial of a layer with an idmapped overlay root on it."""
    if problem:
        return Check(
            name="layers",
            verdict=Verdict.FAILED,
            seen=f"an idmapped overlay root could not be mounted: {problem}",
            advice="the engine must be able to mount: not inside an unprivileged container",
        )
    if kind == "btrfs":
        return Check(name="layers", verdict=Verdict.OK, seen="btrfs, idmapped overlay (tried)")
    return Check(
        name="layers",
        verdict=Verdict.WARNING,
        seen=f"{kind}, idmapped overlay (tried); snapshots copy, forks are slow",
        advice="use a kernel with btrfs, or a state directory on btrfs",
    )


def fuse(*, present: bool) -> Check:
    """Judge whether the kernel can mount what a program serves."""
    if present:
        return Check(name="FUSE", verdict=Verdict.OK, seen="/dev/fuse is there")
    return Check(
        name="FUSE",
        verdict=Verdict.WARNING,
        seen="there is no /dev/fuse; it is for mounting buckets",
        advice="modprobe fuse",
    )


def packet_filter(problem: str | None) -> Check:
    """Judge whether the kernel's packet filter can be read."""
    if problem is None:
        return Check(name="packet filter", verdict=Verdict.OK, seen="nftables answers")
    return Check(
        name="packet filter",
        verdict=Verdict.FAILED,
        seen=f"nftables does not answer: {problem}",
        advice="load nf_tables; the engine needs CAP_NET_ADMIN",
    )


def dns(nameservers: Sequence[str]) -> Check:
    """Judge the resolvers sandboxes would get."""
    if nameservers:
        return Check(name="DNS", verdict=Verdict.OK, seen=", ".join(nameservers))
    return Check(
        name="DNS",
        verdict=Verdict.WARNING,
        seen="sandboxes have none: the host's own resolver cannot be reached from inside",
        advice="set network.nameservers",
    )


def forwarding(refusals: Sequence[str], suggestion: str) -> Check:
    """Judge what other packet filters refuse; *suggestion* is how to let sandboxes through."""
    if not refusals:
        return Check(name="forwarding", verdict=Verdict.OK, seen="no other filter refuses it")
    return Check(
        name="forwarding",
        verdict=Verdict.WARNING,
        seen=f"sandboxes may have no internet: dropped by default in {'; '.join(refusals)}",
        advice=suggestion,
    )


def report(checks: Sequence[Check], level: str, runtime_name: str | None) -> Report:
    """Return all checks, and *level*, the default of this host, unless one of them failed."""
    usable = not any(check.verdict is Verdict.FAILED for check in checks)
    return Report(
        isolation=level if usable else None,
        runtime=runtime_name if usable else None,
        checks=list(checks),
    )
