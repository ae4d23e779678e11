"""What `atoll doctor --cluster` concludes from what a cluster told. Pure."""

from collections.abc import Collection, Sequence

from atoll.cli.checks import Check, Verdict
from atoll.cluster_settings import ClusterSettings
from atoll.runtime.kubernetes.trial import Outcome

OLDEST = (1, 20)
CHECKED = ((1, 28), (1, 37))
"""Versions whose schemas take everything that is made."""


def version(told: str) -> Check:
    """Judge the version that the API tells, such as ``v1.31.2+k3s1``."""
    numbers = tuple(int(part) for part in told.lstrip("v").split(".")[:2] if part.isdigit())
    if numbers < OLDEST:
        return Check(
            name="version",
            verdict=Verdict.FAILED,
            seen=f"Kubernetes {told}; 1.20 is the oldest that works",
            advice="upgrade the cluster",
        )
    if CHECKED[0] <= numbers <= CHECKED[1] or numbers == OLDEST:
        return Check(name="version", verdict=Verdict.OK, seen=f"Kubernetes {told}")
    return Check(
        name="version",
        verdict=Verdict.WARNING,
        seen=f"Kubernetes {told}; tried are 1.20, and the schemas of 1.28 to 1.37",
    )


def rights(missing: Sequence[str], namespace: str) -> Check:
    """Judge what this account may do; *missing* is as ``create pods``."""
    if not missing:
        return Check(name="rights", verdict=Verdict.OK, seen=f"all that is needed in {namespace}")
    return Check(
        name="rights",
        verdict=Verdict.FAILED,
        seen=f"refused in namespace {namespace}: {', '.join(missing)}",
        advice="apply deploy/kubernetes, or bind its Role to this account",
    )


def resources(present: bool, *, needed: bool) -> Check:
    """Judge whether the custom resources are there."""
    if present:
        return Check(name="custom resources", verdict=Verdict.OK, seen="installed")
    return Check(
        name="custom resources",
        verdict=Verdict.FAILED if needed else Verdict.OK,
        seen="not installed; replicas of the engine need them",
        advice="kubectl apply -f deploy/kubernetes/chart/crds" if needed else None,
    )


def runtime_classes(present: Collection[str] | None, settings: ClusterSettings) -> Check:
    """Judge the RuntimeClasses that the settings name; None: they cannot be seen."""
    named = {settings.runtime_class, *settings.runtime_classes.values()} - {""}
    if present is None:
        return _unseen("runtime classes", named)
    if missing := sorted(named - set(present)):
        return Check(
            name="runtime classes",
            verdict=Verdict.FAILED,
            seen=f"there is no RuntimeClass {', '.join(missing)}",
            advice="install it on the nodes, or change cluster.runtime_class(es)",
        )
    if not named:
        return Check(
            name="runtime classes",
            verdict=Verdict.WARNING,
            seen="none is used: sandboxes share the kernel of their node",
            advice=f"choose one in cluster.runtime_class: {_listed(present)}",
        )
    return Check(name="runtime classes", verdict=Verdict.OK, seen=", ".join(sorted(named)))


def storage(present: dict[str, bool] | None, settings: ClusterSettings) -> Check:
    """Judge where files of sandboxes go; *present*: class → whether it is the default."""
    if not settings.persist:
        return Check(
            name="storage",
            verdict=Verdict.WARNING,
            seen="cluster.persist is empty: no file outlives a sleep",
        )
    wanted = settings.storage_class
    if present is None:
        return _unseen("storage", {wanted} - {""})
    default = next((name for name, first in present.items() if first), None)
    if wanted in present or (not wanted and default):
        return Check(name="storage", verdict=Verdict.OK, seen=f"class {wanted or default}")
    there = f"; there are {_listed(present)}" if present else ""
    return Check(
        name="storage",
        verdict=Verdict.FAILED,
        seen=(f"no class {wanted}" if wanted else "no default class") + there,
        advice="set cluster.storage_class, or make a class the default",
    )


def policies(found: Outcome | str, settings: ClusterSettings) -> Check:
    """Judge whether the network enforces policies, or why that is not known."""
    name = "network policies"
    if found is Outcome.ENFORCED:
        if settings.enforces_policies:
            return Check(name=name, verdict=Verdict.OK, seen="enforced")
        return Check(
            name=name,
            verdict=Verdict.WARNING,
            seen="enforced, but none are made",
            advice="set cluster.enforces_policies = true",
        )
    if isinstance(found, Outcome) and found is Outcome.OPEN:
        return Check(
            name=name,
            verdict=Verdict.FAILED if settings.enforces_policies else Verdict.WARNING,
            seen="not enforced: sandboxes reach each other, and whatever the nodes reach",
            advice="use a network that enforces them (Calico, Cilium, k3s's own)"
            + (", or set cluster.enforces_policies = false" if settings.enforces_policies else ""),
        )
    told = found.value if isinstance(found, Outcome) else found
    return Check(name=name, verdict=Verdict.WARNING, seen=f"not known: {told}")


def _unseen(name: str, named: Collection[str]) -> Check:
    wanted = f" ({_listed(named)} is wanted)" if named else ""
    return Check(
        name=name,
        verdict=Verdict.WARNING,
        seen=f"this account may not see them{wanted}",
        advice="run this with a kubeconfig of an administrator",
    )


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "there is none"
