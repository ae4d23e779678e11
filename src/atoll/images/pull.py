"""Copying images between registries, the builder's storage and layouts, by skopeo.

What skopeo prints only chooses between two errors that are both failures: the registry says there
is no such image, or it could not be asked.
"""

import asyncio
import os
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from atoll.errors import (
    ImageNotFoundError,
    ImagePullFailedError,
    InvalidImageError,
    SandboxError,
)
from atoll.images.reference import Reference
from atoll.images.steps import Progress, StepFailedError, run_step

_UNKNOWN = (
    "manifest unknown", "name unknown", "repository name not known", "not found",
    "requested access to the resource is denied",
)  # fmt: skip
"""What registries say for an image that is not there (Docker Hub says access denied)."""


_LOOK = 0.5
"""Seconds between two looks at what is written; skopeo writes at most some 100 MB in that time."""


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


async def bounded(pulling: Coroutine[Any, Any, None], folder: Path, limit: int) -> None:
    """End *pulling* when what it writes to *folder* comes to be too much.

    What the documents of an image say of its size is the registry's word, and looked at by nobody
    before the whole is there. Between two looks it may write some more.

    Args:
        pulling: what is done meanwhile.
        folder: of an OCI layout; need not be there yet.
        limit: bytes on the disk.

    Raises:
        InvalidImageError: it was ended.
    """
    work = asyncio.ensure_future(pulling)
    try:
        while not (await asyncio.wait({work}, timeout=_LOOK))[0]:
            if await asyncio.to_thread(_size, folder) > limit:
                raise InvalidImageError(
                    f"the image is over {limit} bytes",
                    context={"limit": limit},
                    suggestion="raise images.max_image_mb if you trust what it comes from",
                )
    finally:
        work.cancel()
        await asyncio.wait({work})
    work.result()


def _size(folder: Path) -> int:
    size = 0
    for top, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # it gets its last name when it is whole
                size += Path(top, name).stat().st_blocks * 512
    return size


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
