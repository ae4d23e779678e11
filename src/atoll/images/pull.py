"""Copying images between registries, the builder's storage and layouts, by skopeo.

What skopeo prints only chooses between two errors that are both failures: the registry says there
is no such image, or it could not be asked.
"""

from collections.abc import Mapping
from pathlib import Path

from atoll.errors import ImageNotFoundError, ImagePullFailedError, SandboxError
from atoll.images.reference import Reference
from atoll.images.steps import Progress, StepFailedError, run_step

_UNKNOWN = (
    "manifest unknown", "name unknown", "repository name not known", "not found",
    "requested access to the resource is denied",
)  # fmt: skip
"""What registries say for an image that is not there (Docker Hub says access denied)."""


async def pull(
    wanted: Reference,
    destination: str,
    progress: Progress,
    *,
    env: Mapping[str, str],
    timeout: float,
) -> None:
    """Copy an image for this machine's architecture from its registry.

    Args:
        wanted: the image.
        destination: where to, as skopeo writes it (``oci:…``, ``containers-storage:…``).
        progress: gets skopeo's lines.
        env: variables for skopeo (proxies, storage configuration).
        timeout: seconds.

    Raises:
        ImageNotFoundError: the registry has no such image, or it is one of our own names.
        ImagePullFailedError: the registry could not be reached or failed.
        RuntimeNotAvailableError: skopeo is not installed.
    """
    if wanted.is_local:
        raise ImageNotFoundError(
            f"{wanted} is not stored here", context={"image": str(wanted)}, suggestion=_LOCAL
        )
    # Docker's rule: a registry on this machine may speak HTTP.
    verify = "false" if _is_loopback(wanted.registry) else "true"
    argv: list[str | Path] = [
        "skopeo", "copy", "--override-os=linux", f"--src-tls-verify={verify}",
        f"docker://{wanted}", destination,
    ]  # fmt: skip
    try:
        await run_step(argv, progress, timeout=timeout, env=env)
    except StepFailedError as failed:
        raise _typed(wanted, failed) from failed
    except TimeoutError as late:
        raise _unreachable(wanted, f"no end after {timeout:.0f} s") from late


_LOCAL = "names that begin with atoll/ are never pulled; build it with: atoll image build-base"


def _typed(wanted: Reference, failed: StepFailedError) -> SandboxError:
    said = failed.tail.lower()
    if any(phrase in said for phrase in _UNKNOWN):
        return ImageNotFoundError(
            f"{wanted.registry} has no image {wanted.repository}:{wanted.tag or wanted.digest}",
            context={"image": str(wanted), "log": failed.tail},
            suggestion="check the name; a private image needs `skopeo login` on the engine's host",
        )
    return _unreachable(wanted, failed.tail)


def _unreachable(wanted: Reference, log: str) -> ImagePullFailedError:
    return ImagePullFailedError(
        f"{wanted} could not be pulled from {wanted.registry}",
        context={"image": str(wanted), "registry": wanted.registry, "log": log},
        suggestion="check that this host reaches the registry, or set images.image_aliases",
    )


def _is_loopback(registry: str) -> bool:
    host = registry.rpartition(":")[0] if ":" in registry.rpartition("]")[2] else registry
    return host in {"localhost", "127.0.0.1", "[::1]"}
