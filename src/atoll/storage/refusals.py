"""What the layer store refuses, and how the kernel's errors are told."""

import errno
import re
from pathlib import Path

from atoll.errors import (
    ContainerUnavailableError,
    DiskQuotaExceededError,
    SandboxError,
    ValidationFailedError,
    from_os_error,
)

FULL = (errno.ENOSPC, errno.EDQUOT)

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


def check_id(name: str) -> None:
    """Refuse a name of a layer or snapshot that could lead elsewhere."""
    if not _ID.fullmatch(name):
        raise ValidationFailedError(
            "an id of a layer or snapshot has letters, digits, '_' and '-' only"
        )


def no_capacity(path: Path) -> ContainerUnavailableError:
    """Return the error of a host whose disk is too full for more."""
    return ContainerUnavailableError(
        "the host's disk is full",
        context={"reason": "capacity", "path": str(path)},
        suggestion="destroy sandboxes, or free space on the host",
    )


def shut() -> ContainerUnavailableError:
    """Return the error of a store that takes no change: btrfs shuts itself where it cannot grow."""
    return ContainerUnavailableError(
        "the store of all files failed on a full disk; it is opened again when there is space",
        context={"reason": "capacity"},
        suggestion="free space on the host, and try again",
        retry_after=5.0,
    )


def does_not_fit(layer_id: str, used: int, size: int) -> DiskQuotaExceededError:
    """Return the error of a layer that has more in it than its new limit allows."""
    return DiskQuotaExceededError(
        f"what is stored does not fit into {size:,} bytes",
        context={"layer": layer_id, "used": used, "size": size},
        suggestion="delete files first, or choose a larger size",
    )


def typed(error: OSError, path: Path) -> Exception:
    """Leave our own errors, of which some are OSErrors too; map the kernel's."""
    if isinstance(error, SandboxError):
        return error
    return (
        shut() if error.errno == errno.EROFS else from_os_error(error, str(error.filename or path))
    )
