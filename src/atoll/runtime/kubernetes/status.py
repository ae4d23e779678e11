"""What a Pod's status, and a refusal of the cluster, mean for a caller. Pure."""

from typing import Any, Final

from atoll.errors import ContainerUnavailableError, ImageNotFoundError, SandboxError
from atoll.runtime.kubernetes.api import ApiError
from atoll.runtime.kubernetes.manifest import CONTAINER

Object = dict[str, Any]

_FORBIDDEN: Final = 403
"""HTTP status of what a quota refuses, too."""

_NO_IMAGE: Final = frozenset({"ErrImageNeverPull", "InvalidImageName", "ImageInspectError"})
"""What waiting does not mend."""

_PULLING: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"})
"""What it may mend, and what is said if it did not."""

_BROKEN: Final = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)


def address(pod: Object | None) -> str | None:
    """Return the Pod's address once its container runs."""
    if pod is None or ended(pod):
        return None
    status = pod.get("status", {})
    running = [
        one for one in status.get("containerStatuses", ())
        if one["name"] == CONTAINER and "running" in one.get("state", {})
    ]  # fmt: skip
    return str(status["podIP"]) if running and status.get("podIP") else None


def ended(pod: Object | None) -> bool:
    """Whether nothing of the Pod runs any more, or it is being taken down."""
    if pod is None or pod["metadata"].get("deletionTimestamp"):
        return True
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def stopped(pod: Object | None) -> bool:
    """Whether its node said that nothing of the Pod runs any more. The object may stay for a while."""
    if pod is None:
        return True
    status = pod.get("status", {})
    every = status.get("containerStatuses") or ()
    over = all("terminated" in one.get("state", {}) for one in every)
    return ended(pod) and bool(every) and over


def failure(pod: Object | None) -> SandboxError | None:
    """Return why the Pod will never run; None while it still may."""
    if pod is None:
        return None
    for one, state in _waiting(pod):
        reason, message = state.get("reason", ""), str(state.get("message", ""))
        if reason in _NO_IMAGE:
            return _no_image(one["image"], reason, message)
        if reason in _BROKEN:
            return _refused(f"{reason}: {message}")
    if ended(pod):
        return _refused(_last_words(pod))
    return None


def late(pod: Object | None, seconds: float) -> SandboxError:
    """Return why the Pod did not run within *seconds*, as far as it tells."""
    if pod is None:
        return _refused(f"the cluster did not show the Pod within {seconds:g} s")
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return ContainerUnavailableError(
                f"no node has room: {condition.get('message', '')}",
                context={"reason": "capacity"},
                suggestion="stop or destroy sandboxes, or add nodes",
                retry_after=5.0,
            )
    for one, state in _waiting(pod):
        if state.get("reason") in _PULLING:
            return _no_image(one["image"], state["reason"], str(state.get("message", "")))
    return _refused(f"the Pod did not run within {seconds:g} s: {_last_words(pod)}")


def _waiting(pod: Object) -> list[tuple[Object, Object]]:
    status = pod.get("status", {})
    every = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    return [(one, one["state"]["waiting"]) for one in every if "waiting" in one.get("state", {})]


def _last_words(pod: Object) -> str:
    status = pod.get("status", {})
    every = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    for one in every:
        if (end := one.get("state", {}).get("terminated")) and end.get("exitCode"):
            said = end.get("message") or end.get("reason") or ""
            return f"container {one['name']} ended with {end['exitCode']} ({said})"
    return str(status.get("message") or status.get("reason") or status.get("phase", "Unknown"))


def _no_image(image: str, reason: str, message: str) -> SandboxError:
    return ImageNotFoundError(
        f"the cluster cannot get image {image!r}: {message or reason}",
        context={"image": image, "reason": reason},
        suggestion="push it to a registry that the nodes reach, or name imagePullSecrets",
    )


def _refused(message: str) -> SandboxError:
    return ContainerUnavailableError(
        message, context={"reason": "runtime", "runtime": "kubernetes"}
    )


def unavailable(error: ApiError) -> SandboxError:
    """Return what a caller is told of a cluster that refused, or was not there."""
    quota = error.status == _FORBIDDEN and "quota" in str(error)
    return ContainerUnavailableError(
        f"the cluster refused: {error}" if error.status else str(error),
        context={"reason": "capacity" if quota else "runtime", "runtime": "kubernetes"},
        retry_after=5.0,
    )
